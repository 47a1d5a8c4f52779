"""A careful client of AG-UI: parses every event by the official types and keeps the protocol's rules.

`Rules` is the consumer's half of the specification (runs, steps, messages, calls, reasoning): it
fails at once when a producer breaks one. `Visit` is one POST to the application.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ag_ui.core import Event
from pydantic import TypeAdapter

from streaming.asgi.lanes import LaneHandler
from tests.support.exchange import Exchange

_adapter: TypeAdapter[Any] = TypeAdapter(Event)


def parsed(data: str) -> dict[str, Any]:
    """One event's JSON, held against the official type: nothing unknown, nothing null, nothing
    that reads back differently."""
    raw: dict[str, Any] = json.loads(data)
    event = _adapter.validate_json(data)
    assert json.loads(event.model_dump_json(by_alias=True)) == raw
    assert not event.model_extra, (event.model_extra, raw)
    return raw


@dataclass
class Rules:
    """What was seen, in order, and what stands open."""

    events: list[dict[str, Any]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Messages and reasoning by messageId, their parts together, arguments by toolCallId."""
    seen: set[str] = field(default_factory=set)
    """Ids of messages, parts and calls."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    """toolCallId -> name."""
    _open: dict[tuple[str, str], None] = field(default_factory=dict)

    STARTS = {
        "TEXT_MESSAGE": "messageId",
        "REASONING_MESSAGE": "messageId",
        "REASONING": "messageId",
        "TOOL_CALL": "toolCallId",
    }
    GROW = {
        "TEXT_MESSAGE_CONTENT": "TEXT_MESSAGE",
        "REASONING_MESSAGE_CONTENT": "REASONING_MESSAGE",
        "TOOL_CALL_ARGS": "TOOL_CALL",
    }

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.types[-1] in {"RUN_FINISHED", "RUN_ERROR"}

    @property
    def outcome(self) -> dict[str, Any]:
        found: dict[str, Any] = self.events[-1]["outcome"]
        return found

    @property
    def interrupts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.outcome["interrupts"]
        return found

    def custom(self, name: str) -> list[dict[str, Any]]:
        return [each["value"] for each in self.events if each.get("name") == f"pilothouse.{name}"]

    def feed(self, event: dict[str, Any]) -> None:
        type_ = event["type"]
        self._stays_within(event)
        assert not self.ended, f"{type_} after the end"
        assert bool(self.events) == (type_ != "RUN_STARTED"), "RUN_STARTED is first, and once"
        self.events.append(event)
        stem, _, last = type_.rpartition("_")
        if type_ in self.GROW:
            self._grow(self.GROW[type_], event)
        elif stem == "STEP":
            self._pair("STEP", event["stepName"], opens=last == "STARTED")
        elif stem in self.STARTS and last in {"START", "END"}:
            self._pair(stem, event[self.STARTS[stem]], opens=last == "START")
            if type_ == "TOOL_CALL_START":
                self.calls[event["toolCallId"]] = event["toolCallName"]
        elif type_ == "TOOL_CALL_RESULT":
            self._result(event)
        elif type_ == "RUN_FINISHED":
            assert not self._open, f"still open at the end: {list(self._open)}"
            self._same_run(event)

    def _stays_within(self, event: Mapping[str, Any]) -> None:
        """Between a message's or call's start and end many clients take nothing else."""
        for kind, key in self._open:
            if kind in self.GROW.values():
                assert event["type"].startswith(kind), f"{event['type']} within {kind}"
                assert event[self.STARTS[kind]] == key

    def _same_run(self, event: Mapping[str, Any]) -> None:
        for name in ("threadId", "runId"):
            assert event[name] == self.events[0][name]

    def _pair(self, kind: str, key: str, *, opens: bool) -> None:
        if opens:
            assert (kind, key) not in self._open, f"{kind} {key} is open already"
            self._open[kind, key] = None
            if kind not in {"STEP", "REASONING"}:
                block, _, part = key.partition("~")
                assert key not in self.seen, f"{kind} {key} is not new"
                assert bool(part) == (block in self.texts), f"{key} is not the next part"
                self.seen.add(key)
                self.texts.setdefault(block, "")
        else:
            assert (kind, key) in self._open, f"{kind} {key} is not open"
            del self._open[kind, key]

    def _grow(self, kind: str, event: Mapping[str, Any]) -> None:
        key = event[self.STARTS[kind]]
        assert (kind, key) in self._open, f"{kind} {key} is not open"
        self.texts[key.partition("~")[0]] += event["delta"]

    def _result(self, event: dict[str, Any]) -> None:
        call_id = event["toolCallId"]
        assert ("TOOL_CALL", call_id) not in self._open, "a result comes after its call"
        assert call_id not in self.results, "one result per call"
        self.results[call_id] = event


def said(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"id": f"m-{abs(hash(text))}", "role": "user", "content": text}


def run_input(thread: str, run: str, *messages: Any, **more: Any) -> dict[str, Any]:
    """As the official client writes it; strings are the user's messages."""
    given = [said(each) if isinstance(each, str) else each for each in messages]
    body = {"threadId": thread, "runId": run, "messages": given, "state": {}, **more}
    return {"tools": [], "context": [], "forwardedProps": {}, "protocolVersion": "1.0", **body}


def answer(interrupt: Mapping[str, Any], **payload: Any) -> dict[str, Any]:
    """A resume entry."""
    return {"interruptId": interrupt["id"], "status": "resolved", "payload": payload}


class Stream:
    """Bytes of a response, as events."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.comments = 0
        self._rest = b""

    def feed(self, chunk: bytes) -> None:
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        for block in blocks:
            if block.startswith(b":"):
                self.comments += 1
                continue
            assert block.startswith(b"data: "), block
            assert b"\n" not in block, "one line per event"
            self.rules.feed(parsed(block.removeprefix(b"data: ").decode()))


class Visit(Exchange):
    """A POST, and the run that it sees."""

    def __init__(
        self, app: LaneHandler, path: str, body: bytes, headers: Mapping[str, str]
    ) -> None:
        self.stream = Stream()
        sent = {"content-type": "application/json", **headers, "content-length": str(len(body))}
        super().__init__(app, "POST", path, sent, body)

    @property
    def rules(self) -> Rules:
        return self.stream.rules

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found

    def streamed(self, body: bytes) -> None:
        self.stream.feed(body)

    async def until(self, holds: Callable[[Rules], bool]) -> Visit:
        return await self.once(lambda: holds(self.rules))

    async def answered(self) -> Visit:
        """Its status is there."""
        return await self.once(lambda: self.status > 0)


def all_rules(events: Iterable[dict[str, Any]]) -> Rules:
    """Of events that are at hand."""
    rules = Rules()
    for event in events:
        rules.feed(parsed(json.dumps(event)))
    return rules


Post = Callable[..., Visit]
"""The fixture `post`."""
