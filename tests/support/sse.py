"""Reads our streams in tests: bytes in, typed events out, and a reader that keeps the rules.

`events()` reads any async iterator of bytes (a response of httpx, of Django, or `follow()`
itself); `open_stream()` opens one over HTTP. `Reader` applies events as a careful client does and
fails at once when a promise of the stream is broken.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

TERMINAL = ("task_completed", "task_failed", "task_cancelled", "budget_exceeded")
BLOCKS_END = (
    *TERMINAL,
    "model_call_finished",
    "model_call_retried",
    "task_recovered",
    "task_started",
)
MESSAGES = ("assistant_message", "reasoning_message")
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, kw_only=True)
class Event:
    """One event of the stream."""

    type: str
    id: int | None
    """Only on stored events."""
    data: Any
    """The JSON object of `data:`."""

    @property
    def payload(self) -> dict[str, Any]:
        payload: dict[str, Any] = self.data["payload"]
        return payload

    @property
    def sequence(self) -> int:
        return int(self.data["sequence"])

    @property
    def task_id(self) -> str:
        return str(self.data["task_id"])


class Parser:
    """By the rules of the SSE standard, over bytes: lines end at LF, CR or CRLF and nowhere else."""

    def __init__(self) -> None:
        self.comments: list[str] = []
        self.retry: int | None = None
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        return [event for block in blocks if (event := self._event(block)) is not None]

    def _event(self, block: bytes) -> Event | None:
        fields: dict[str, list[str]] = {}
        for line in _LINE_END.split(block):
            name, _, value = line.decode().partition(":")
            if name:
                fields.setdefault(name, []).append(value.removeprefix(" "))
            else:
                self.comments.append(value.strip())
        if "retry" in fields:
            self.retry = int(fields["retry"][0])
        if "data" not in fields:
            return None
        assert len(fields["data"]) == 1, "data is one line of JSON"
        data = json.loads(fields["data"][0])
        event = Event(
            type=fields["event"][0],
            id=int(fields["id"][0]) if "id" in fields else None,
            data=data,
        )
        assert event.type == data["type"]
        return event


async def events(
    chunks: AsyncIterable[bytes], parser: Parser | None = None
) -> AsyncIterator[Event]:
    """The events of a stream, as they come."""
    parser = parser or Parser()
    async for chunk in chunks:
        for event in parser.feed(chunk):
            yield event


@asynccontextmanager
async def open_stream(
    client: httpx.AsyncClient,
    url: str,
    *,
    last_event_id: int | str | None = None,
    parser: Parser | None = None,
    **options: Any,
) -> AsyncIterator[AsyncIterator[Event]]:
    """`async with open_stream(client, url) as received: async for event in received: …`"""
    headers = dict(options.pop("headers", {}))
    if last_event_id is not None:
        headers["Last-Event-ID"] = str(last_event_id)
    # A stream is silent for as long as its heartbeat lets it.
    options.setdefault("timeout", httpx.Timeout(10, read=60))
    async with client.stream("GET", url, headers=headers, **options) as response:
        assert response.status_code == 200, (response.status_code, await response.aread())
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events(response.aiter_bytes(), parser)


async def read_all(
    client: httpx.AsyncClient, url: str, *, last_event_id: int | str | None = None, **options: Any
) -> list[Event]:
    """Everything until the server ends the stream."""
    async with open_stream(client, url, last_event_id=last_event_id, **options) as received:
        return [event async for event in received]


@dataclass
class Reader:
    """Applies events as a careful client does, and checks the promises of the stream."""

    last_id: int | None = None
    """The cursor that the stream was opened with; None = from the start."""
    ids: list[int] = field(default_factory=list)
    stored: list[Event] = field(default_factory=list)
    live: list[Event] = field(default_factory=list)
    open_blocks: dict[tuple[str, str], str] = field(default_factory=dict)
    """Text so far by task and block."""
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    """Raw argument text that was watched, of calls that were then stored."""
    ended_blocks: set[tuple[str, str]] = field(default_factory=set)
    max_text: int = 0
    """The most characters that one live frame carried."""

    @property
    def ended(self) -> bool:
        return bool(self.stored) and self.stored[-1].type in TERMINAL

    def apply(self, event: Event) -> None:
        if event.id is None:
            self._live(event)
        else:
            self._stored(event)

    def _live(self, event: Event) -> None:
        assert event.sequence == 0
        self.live.append(event)
        payload = event.payload
        if event.type == "snapshot":
            key = (event.task_id, payload["block_id"])
            assert key not in self.open_blocks, "one snapshot per block, before its deltas"
            self._grow(key, "", payload["text"])
        elif event.type.endswith("_delta"):
            key = (event.task_id, payload["block_id"])
            so_far = self.open_blocks.get(key, "")
            assert payload["offset"] == len(so_far), "a delta starts where the text ends"
            self._grow(key, so_far, payload["delta"])

    def _grow(self, key: tuple[str, str], so_far: str, text: str) -> None:
        assert key not in self.ended_blocks, "nothing of a block comes after its end"
        self.max_text = max(self.max_text, len(text.encode()))
        self.open_blocks[key] = so_far + text

    def _stored(self, event: Event) -> None:
        assert event.id is not None
        expected = (self.last_id or 0) + 1
        assert event.id == expected, f"expected id {expected}, got {event.id}"
        self.last_id = event.id
        self.ids.append(event.id)
        self.stored.append(event)
        if "block_id" in event.payload:
            self._complete(event, (event.task_id, event.payload["block_id"]))
        if event.type in BLOCKS_END:
            mine = [key for key in self.open_blocks if key[0] == event.task_id]
            self.ended_blocks.update(mine)
            for key in mine:
                del self.open_blocks[key]

    def _complete(self, event: Event, key: tuple[str, str]) -> None:
        self.ended_blocks.add(key)
        watched = self.open_blocks.pop(key, None)
        if watched is None:
            return
        if event.type in MESSAGES:
            assert watched == event.payload["text"], "the deltas add up to the text"
        else:
            self.calls[key] = watched
