"""A task's stream as AG-UI's events: pure, frame by frame, in the order of the log.

1. `RUN_STARTED` comes first and one of `RUN_FINISHED` and `RUN_ERROR` last; whatever was opened is
   closed before it.
2. A block opens when its first text is seen, and ends with its stored event; what nobody watched
   comes whole. An attempt that broke off never happened: what was seen of it is closed and named.
3. The end is folded from the log: the same run, asked for again, has the same end.
4. One message or call is open at a time (`streaming.agui.wire`).

A block's id is the `messageId` of its text and the `toolCallId` of its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from agent.events import TERMINAL_TYPES
from streaming import sse
from streaming.agui.blocks import CALL, KINDS, REASONING, TEXT, Kind, Out, Payload, result
from streaming.agui.interrupts import interrupt
from streaming.agui.wire import Wire
from tasks.canonical import canonical_json
from tasks.threads import Opening

PROTOCOL_VERSION = "1.0"
VENDOR = "pilothouse"
LEVEL = "level"
"""Not of the stream: everything that is stored so far has been fed."""
PASSED_ON = ("artifact_recorded", "budget_warning", "context_compacted", "tool_progress")
"""They have no place of their own in AG-UI and travel as CUSTOM."""
ATTEMPT_ENDS = TERMINAL_TYPES | {
    "model_call_finished",
    "model_call_retried",
    "task_recovered",
    "task_started",
}
WITHDRAWN = "The model's reply broke off before this call was complete. It was never made."


class Frame(msgspec.Struct, frozen=True):
    """One event of a task's stream."""

    type: str
    payload: dict[str, Any] = {}
    sequence: int = 0
    """0: not stored."""


def encode(event: Out) -> bytes:
    """As it goes out."""
    return b"data: %b\n\n" % sse.encode(event)


class Translation:
    """One run of AG-UI. `opening` is what stood in the log where it begins."""

    def __init__(
        self, thread_id: str, run_id: str, opening: Opening, parent_run_id: str | None = None
    ) -> None:
        self._names = {"threadId": thread_id, "runId": run_id}
        self._parent = parent_run_id
        self._questions = opening.questions
        self._answered = opening.answered
        self._blocks = dict(opening.blocks)
        self._wire = Wire(_void)
        self._step = ""
        self._usage: dict[str, dict[str, int]] = {}
        self._model = ""
        self._answer: str | None = None
        self.ended = False

    def begin(self, about: Mapping[str, Any]) -> Out:
        """`about`: what a client may want to know of our own."""
        parent = {} if self._parent is None else {"parentRunId": self._parent}
        started = {"type": "RUN_STARTED", **self._names, **parent}
        return {**started, "protocolVersion": PROTOCOL_VERSION, "metadata": {VENDOR: about}}

    def feed(self, frame: Frame) -> Iterator[Out]:
        """What this frame means. Nothing may be fed once `ended`."""
        type_, payload = frame.type, frame.payload
        if type_ == LEVEL:
            if self._stands():
                yield from self._interrupt()
            return
        if frame.sequence:
            if self._stands() and self._questions.stops_before(type_, payload):
                yield from self._interrupt()
                return
            self._questions.apply(type_, payload)
        if type_ in ATTEMPT_ENDS:
            yield from self._wire.withdraw()
        if type_ in PASSED_ON:
            yield from self._wire.aside([custom(type_, self._renamed(payload))])
        if handler := _HANDLERS.get(type_):
            yield from handler(self, payload)

    def _renamed(self, payload: Payload) -> Payload:
        """With the id that a call has on this wire."""
        block_id = self._blocks.get(payload.get("tool_call_id", ""))
        return payload if block_id is None else {**payload, "toolCallId": block_id}

    # ── steps and use ─────────────────────────────────────────────────────────────────────────

    def _model_call_started(self, payload: Payload) -> Iterator[Out]:
        self._model = payload["model"]
        name = f"step {payload['step']}"
        if name != self._step:
            yield from self._finish_step()
            self._step = name
            yield {"type": "STEP_STARTED", "stepName": name}

    def _finish_step(self) -> Iterator[Out]:
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": self._step}
        self._step = ""

    def _spent(self, payload: Payload) -> Iterator[Out]:
        """Tokens of this run alone, by model."""
        usage = payload.get("usage") or {}
        model = payload.get("model") or self._model
        total = self._usage.setdefault(model, {})
        for ours, theirs in _COUNTS.items():
            if count := usage.get(ours):
                total[theirs] = total.get(theirs, 0) + count
        return iter(())

    # ── what grows ────────────────────────────────────────────────────────────────────────────

    def _snapshot(self, payload: Payload) -> Iterator[Out]:
        return self._wire.grown(KINDS[payload["kind"]], payload)

    def _text_grown(self, payload: Payload) -> Iterator[Out]:
        return self._wire.grown(TEXT, payload)

    def _reasoning_grown(self, payload: Payload) -> Iterator[Out]:
        return self._wire.grown(REASONING, payload)

    def _call_grown(self, payload: Payload) -> Iterator[Out]:
        return self._wire.grown(CALL, payload)

    def _message(self, payload: Payload) -> Iterator[Out]:
        return self._wire.completed(TEXT, payload, payload["text"])

    def _reasoning(self, payload: Payload) -> Iterator[Out]:
        return self._wire.completed(REASONING, payload, payload["text"])

    def _requested(self, payload: Payload) -> Iterator[Out]:
        self._blocks[payload["tool_call_id"]] = payload["block_id"]
        arguments = payload["arguments"]
        raw = payload.get("raw_arguments", "")
        text = raw if arguments is None else canonical_json(arguments)
        return self._wire.completed(CALL, payload, text)

    # ── what is stored at once ────────────────────────────────────────────────────────────────

    def _result(self, payload: Payload) -> Iterator[Out]:
        call_id = payload["tool_call_id"]
        about = {name: value for name, value in payload.items() if name in _OF_RESULT}
        yield result(self._blocks.pop(call_id, call_id), payload["content"], about)

    def _said(self, payload: Payload) -> Iterator[Out]:
        """Somebody spoke to the running task."""
        message_id = payload["message_id"]
        began: Out = {"type": "TEXT_MESSAGE_START", "messageId": message_id, "role": "user"}
        named = {**began, "name": payload["by"]} if payload["by"] else began
        text = TEXT.grow(message_id, payload["text"])
        return self._wire.aside([named, text, *TEXT.end(message_id)])

    def _agent_completed(self, payload: Payload) -> Iterator[Out]:
        self._answer = payload["final_answer"]
        return iter(())

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    def _stands(self) -> bool:
        """The task waits for people, and not for what was answered when this run began."""
        asked = self._questions
        return asked.stands and not self._answered & asked.pending.keys()

    def _interrupt(self) -> Iterator[Out]:
        pending = self._questions.pending.values()
        asked = [interrupt(each, self._blocks.get(each["tool_call_id"])) for each in pending]
        return self._finish({"type": "interrupt", "interrupts": asked})

    def _succeeded(self, payload: Payload) -> Iterator[Out]:
        more = {} if self._answer is None else {"result": self._answer}
        return self._finish({"type": "success"}, **more)

    def _cancelled(self, payload: Payload) -> Iterator[Out]:
        why = {"reason": "cancelled", "by": payload["by"]}
        return self._finish({"type": "cancelled"}, metadata={VENDOR: why})

    def _over_budget(self, payload: Payload) -> Iterator[Out]:
        why = {"reason": "budget_exceeded", **payload}
        return self._finish({"type": "cancelled"}, metadata={VENDOR: why})

    def _finish(self, outcome: Out, **more: Any) -> Iterator[Out]:
        yield from self._wire.withdraw()
        yield from self._finish_step()
        self.ended = True
        yield {"type": "RUN_FINISHED", **self._names, "outcome": outcome, **more, **self._use()}

    def _failed(self, payload: Payload) -> Iterator[Out]:
        yield from self._finish_step()
        self.ended = True
        error = payload["error"]
        message = " ".join(filter(None, (error["message"], error.get("hint"))))
        yield {"type": "RUN_ERROR", "message": message, "code": error["code"], **self._use()}

    def _use(self) -> Out:
        found = []
        for model, counts in self._usage.items():
            if not counts:
                continue
            total = counts.get("inputTokens", 0) + counts.get("outputTokens", 0)
            found.append({**({"model": model} if model else {}), **counts, "totalTokens": total})
        return {"usage": found} if found else {}


def _void(kind: Kind, name: str) -> Iterator[Out]:
    """Of an attempt that broke off: what was seen under this id is said to be none."""
    if kind is CALL:
        yield result(name, WITHDRAWN, {"ok": False, "withdrawn": True})
    yield custom("withdrawn", {"id": name})


def custom(name: str, value: Mapping[str, Any]) -> Out:
    """What AG-UI has no event for."""
    return {"type": "CUSTOM", "name": f"{VENDOR}.{name}", "value": value}


_OF_RESULT = frozenset({"ok", "details", "duration_ms", "truncated", "size", "url"})
_COUNTS = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "reasoning_tokens": "reasoningTokens",
    "cached_tokens": "cachedInputTokens",
}
_HANDLERS: dict[str, Callable[[Translation, Payload], Iterator[Out]]] = {
    "snapshot": Translation._snapshot,
    "assistant_delta": Translation._text_grown,
    "reasoning_delta": Translation._reasoning_grown,
    "tool_call_delta": Translation._call_grown,
    "model_call_started": Translation._model_call_started,
    "model_call_finished": Translation._spent,
    "context_compacted": Translation._spent,
    "reasoning_message": Translation._reasoning,
    "assistant_message": Translation._message,
    "tool_call_requested": Translation._requested,
    "tool_call_finished": Translation._result,
    "user_message": Translation._said,
    "agent_completed": Translation._agent_completed,
    "task_completed": Translation._succeeded,
    "task_failed": Translation._failed,
    "task_cancelled": Translation._cancelled,
    "budget_exceeded": Translation._over_budget,
}
