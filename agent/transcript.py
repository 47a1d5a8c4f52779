"""The conversation so far, folded from events, and nothing else.

`apply()` takes stored events in their order; the engine applies its own the moment they are stored,
a later run applies the same ones from the log, so both hold the same messages by construction. Of
live ones it only remembers unfinished text, in case a cancel makes that the last word.
Whatever the cut, `messages()` is a history that a strict provider accepts: every call has exactly
one result, right after the message that asked for it, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from agent.entries import INTERRUPTED as INTERRUPTED
from agent.entries import REPEATED as REPEATED
from agent.entries import Call as Call
from agent.entries import Entry, Place, Said, Settled, Summary
from agent.entries import Exchange as Exchange
from agent.entries import Spent as Spent
from agent.events import (
    AgentCompleted,
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetExceeded,
    BudgetWarning,
    ContextCompacted,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningMessage,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageAdded,
)
from agent.messages import Message, Reasoning, Text, ToolCall

ABOUT_A_LIMIT = "limit:"
"""Begins the `tool_call_id` of a question that is about no call; no call's id begins so."""


class Transcript:
    """Events in, messages out. Not thread-safe; one owner."""

    def __init__(self, events: Iterable[StoredEvent] = ()) -> None:
        self.entries: list[Entry] = []
        self._settled = Settled()
        self.calls: dict[str, Call] = {}
        """Every call that was folded, by its id."""
        self.current_calls: list[Call] = []
        """All calls of the current task."""
        self.spent = Spent()
        self.warned: set[tuple[str, str]] = set()
        """(scope, which) of the limits that people were told about."""
        self.granted: dict[tuple[str, str], float] = {}
        """What a person added to a limit of the current task."""
        self.limit_refused: ApprovalRequired | None = None
        """The question about a limit that was not answered with yes."""
        self.place: Place | None = None
        """Of the event that is applied next; set by who reads the log or writes it."""
        self.begins_late = False
        """Earlier events were not read: a summary stands for them."""
        self.final_answer: str | None = None
        self._task_begins = 0
        """Index of the current task's goal in `entries`."""
        self._open: Exchange | None = None
        """The reply being stored: its model call has begun and not finished."""
        self._held: list[Said] = []
        """Said while a model call was under way: the model sees it after that reply."""
        self._partial: dict[str, list[str]] = {}
        self._partial_step = 0
        self._limit_asks: dict[str, ApprovalRequired] = {}
        for event in events:
            self.apply(event)

    # ── folding ──────────────────────────────────────────────────────────────────────────────

    def apply(self, event: AgentEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def _unfinished(self, delta: AssistantDelta) -> None:
        self._partial_step = delta.step
        self._partial.setdefault(delta.block_id, []).append(delta.delta)

    def _task_created(self, event: TaskCreated) -> None:
        self.spent = Spent()
        self.warned = set()
        self.granted = {}
        self.limit_refused = None
        self.current_calls = []
        self.final_answer = None
        self._close_reply()
        for entry in self.entries[:1]:
            if isinstance(entry, Summary):
                entry.own = False
                self._settled.forget()
        self._task_begins = len(self.entries)
        self.entries.append(Said(text=event.goal, is_goal=True, place=self.place))

    def _user_message(self, event: UserMessageAdded) -> None:
        said = Said(text=event.text, place=self.place)
        if self._open is not None:
            self._held.append(said)
        else:
            self.entries.append(said)

    def _model_call_started(self, event: ModelCallStarted) -> None:
        self._close_reply()
        self._open = Exchange(step=event.step, place=self.place, model=event.model)

    def _model_call_retried(self, event: ModelCallRetried) -> None:
        self._partial.clear()
        self._open = None
        self._release_held()

    def _model_call_finished(self, event: ModelCallFinished) -> None:
        self.spent.add(event)
        self._close_reply()

    def _reasoning(self, event: ReasoningMessage) -> None:
        block = Reasoning(
            block_id=event.block_id, text=event.text, provider_data=_opaque(event.provider_data)
        )
        self._reply(event.step).blocks.append(block)

    def _assistant(self, event: AssistantMessageAdded) -> None:
        reply = self._reply(event.step)
        data = _opaque(event.provider_data)
        reply.blocks.append(Text(block_id=event.block_id, text=event.text, provider_data=data))
        if event.partial is True:
            reply.note = "cut off here"

    def _requested(self, event: ToolCallRequested) -> None:
        asked = ToolCall(
            block_id=event.block_id,
            tool_call_id=event.tool_call_id,
            index=event.index,
            name=event.name,
            arguments=event.arguments,
            raw_arguments="" if event.raw_arguments is UNSET else event.raw_arguments,
            problem="" if event.problem is UNSET else event.problem,
            provider_data=_opaque(event.provider_data),
        )
        call = Call(step=event.step, asked=asked, capability=event.capability, risk=event.risk)
        reply = self._reply(event.step)
        reply.blocks.append(asked)
        reply.calls.append(call)
        self.calls[asked.tool_call_id] = call
        self.current_calls.append(call)

    def _started(self, event: ToolCallStarted) -> None:
        self.calls[event.tool_call_id].started = True

    def _finished(self, event: ToolCallFinished) -> None:
        self.calls[event.tool_call_id].result = event

    def _approval_required(self, event: ApprovalRequired) -> None:
        if event.tool_call_id.startswith(ABOUT_A_LIMIT):
            self._limit_asks[event.tool_call_id] = event
            return
        call = self.calls[event.tool_call_id]
        call.ask, call.answer = event, None

    def _approval_resolved(self, event: ApprovalResolved) -> None:
        if event.tool_call_id.startswith(ABOUT_A_LIMIT):
            self._limit_answered(self._limit_asks[event.tool_call_id], event)
            return
        call = self.calls[event.tool_call_id]
        if event.status == "stale":
            return
        call.answer = event
        if event.status == "approved" and event.edited_arguments is not None:
            call.asked = msgspec.structs.replace(
                call.asked, arguments=event.edited_arguments, raw_arguments="", problem=""
            )
        if event.status == "approved" and event.answer == "retry":
            call.started = False

    def _limit_answered(self, ask: ApprovalRequired, answer: ApprovalResolved) -> None:
        if answer.status != "approved":
            self.limit_refused = ask
            return
        key = (str(ask.arguments["scope"]), str(ask.arguments["which"]))
        self.granted[key] = self.granted.get(key, 0) + ask.arguments["more"]
        self.warned.discard(key)

    def _warning(self, event: BudgetWarning) -> None:
        self.warned.add((event.scope, event.which))

    def _compacted(self, event: ContextCompacted) -> None:
        self.spent.add(event)
        if event.covered:
            self.summarize(event, event.covered)

    def settle(self) -> None:
        """What is said while no model call is under way stands at its place."""
        self._close_reply()

    def summarize(self, event: ContextCompacted, covered: int) -> None:
        """Let the event's summary stand for the first so many entries."""
        begins = Place(task_id=event.from_task_id, sequence=event.from_sequence)
        summary = Summary(text=event.summary, kept=tuple(event.kept), begins=begins)
        self.entries[:covered] = [summary]
        self._settled.forget()
        self._task_begins = max(1, self._task_begins - covered + 1)

    def _agent_completed(self, event: AgentCompleted) -> None:
        self.final_answer = event.final_answer

    def _ended(self, event: StoredEvent) -> None:
        self._close_reply()
        words = _ENDINGS.get(type(event))
        if words is None:
            return
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Exchange) and not last.calls and last.blocks:
            last.note = words
        else:
            self.entries.append(Exchange(step=self.spent.steps, note=words))

    def _reply(self, step: int) -> Exchange:
        if self._open is None:
            self._open = Exchange(step=step)
        return self._open

    def _close_reply(self) -> None:
        if self._open is not None and self._open.blocks:
            self.entries.append(self._open)
        self._open = None
        self._partial.clear()
        self._release_held()

    def _release_held(self) -> None:
        self.entries.extend(self._held)
        self._held.clear()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def messages(self) -> list[Message]:
        """The history for the next model call."""
        messages = self._settled.messages(self.entries)
        if self._open is not None:
            messages.extend(self._open.messages())
        for said in self._held:
            messages.extend(said.messages())
        return messages

    @property
    def last_exchange(self) -> Exchange | None:
        """The newest reply of the current task, if its model has replied."""
        if self._open is not None and self._open.blocks:
            return self._open
        for entry in reversed(self.entries[self._task_begins :]):
            if isinstance(entry, Exchange):
                return entry
        return None

    @property
    def open_calls(self) -> list[Call]:
        """Calls of the newest reply that have no result yet, in order."""
        last = self.last_exchange
        return [] if last is None else [call for call in last.calls if call.result is None]

    def current_words(self, before: int) -> list[str]:
        """What people said in the current task, as far as it stands in the first entries."""
        words: list[str] = []
        for number, entry in enumerate(self.entries[:before]):
            if isinstance(entry, Summary) and entry.own:
                words.extend(entry.kept)
            elif isinstance(entry, Said) and number >= self._task_begins:
                words.append(entry.text)
        return words

    @property
    def unanswered(self) -> bool:
        """Somebody said something that the model has not seen."""
        last = self.entries[-1] if self.entries else None
        return bool(self._held) or isinstance(last, Said)

    def knows_block(self, block_id: str) -> bool:
        """Whether this text is part of the history already."""
        replies = [*self.entries, self._open]
        return any(
            block.block_id == block_id
            for reply in replies
            if isinstance(reply, Exchange)
            for block in reply.blocks
        )

    def rejections(self, call: Call) -> int:
        """How often a person said no to exactly this call in this task."""
        return sum(
            1
            for other in self.current_calls
            if other.answer is not None
            and other.answer.kind in {"call", "question"}
            and other.answer.status == "rejected"
            and other.key == call.key
        )

    def repeats(self, call: Call, most: int, result: str | None = None) -> int:
        """How many finished calls right before `call` were the same with the same result (this one,
        if given); counted up to `most`."""
        key, count = call.key, 0
        for other in reversed(self.current_calls):
            if other.result is None or other is call:
                continue
            result = other.outcome if result is None else result
            if count == most or other.outcome != result or other.key != key:
                break
            count += 1
            if other.answer is not None and other.answer.kind == "limit":
                break
        return count

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    def partial_events(self) -> list[StoredEvent]:
        """The text of the reply that is being watched, as its last word."""
        return [
            AssistantMessageAdded(
                step=self._partial_step, block_id=block_id, text="".join(pieces), partial=True
            )
            for block_id, pieces in self._partial.items()
        ]

    def closing_events(self, why: str) -> list[StoredEvent]:
        """What makes the history whole when the run is cut here: unfinished text as partial, a
        result for every call without one."""
        return [*self.partial_events(), *self.results(why)]

    def results(self, why: str) -> list[StoredEvent]:
        """A result for every call without one."""
        return [
            ToolCallFinished(
                step=call.step,
                tool_call_id=call.asked.tool_call_id,
                ok=False,
                content=INTERRUPTED if call.started else f"Not run: {why}.",
            )
            for call in self.open_calls
        ]


def _opaque(data: Any) -> Any:
    return None if data is UNSET else data


_ENDINGS: dict[type, str] = {
    TaskFailed: "this request failed before it was answered",
    TaskCancelled: "this request was stopped before it was answered",
    BudgetExceeded: "this request reached a limit before it was answered",
}

_HANDLERS: dict[type, Callable[[Transcript, Any], None]] = {
    AssistantDelta: Transcript._unfinished,
    TaskCreated: Transcript._task_created,
    UserMessageAdded: Transcript._user_message,
    ModelCallStarted: Transcript._model_call_started,
    ModelCallRetried: Transcript._model_call_retried,
    ModelCallFinished: Transcript._model_call_finished,
    ReasoningMessage: Transcript._reasoning,
    AssistantMessageAdded: Transcript._assistant,
    ToolCallRequested: Transcript._requested,
    ToolCallStarted: Transcript._started,
    ToolCallFinished: Transcript._finished,
    ApprovalRequired: Transcript._approval_required,
    ApprovalResolved: Transcript._approval_resolved,
    BudgetWarning: Transcript._warning,
    ContextCompacted: Transcript._compacted,
    AgentCompleted: Transcript._agent_completed,
    TaskCompleted: Transcript._ended,
    TaskFailed: Transcript._ended,
    TaskCancelled: Transcript._ended,
    BudgetExceeded: Transcript._ended,
}
