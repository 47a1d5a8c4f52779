"""A log in memory that publishes to the real hub, and clients that read it with the real `follow()`.

The log decides when a commit becomes visible in the "database" and when the hub hears of it, so
that the races between the two can be played one by one.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from agent.events import (
    AgentCompleted,
    AssistantDelta,
    AssistantMessageAdded,
    Delta,
    ErrorInfo,
    LiveEvent,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningDelta,
    ReasoningMessage,
    StoredEvent,
    TaskCompleted,
    TaskStarted,
    ToolCallDelta,
    ToolCallRequested,
    UserMessageAdded,
    payload_of,
)
from agent.messages import Usage
from streaming.follow import follow
from streaming.source import Greeting, Source
from tasks.hub import Kind, StoredFrame, hub
from tests.support.sse import Parser, Reader

DELTAS: dict[str, type[Delta]] = {
    "text": AssistantDelta,
    "reasoning": ReasoningDelta,
    "tool_call": ToolCallDelta,
}

END: list[StoredEvent] = [AgentCompleted(final_answer="done"), TaskCompleted()]


class World:
    """One session and its log."""

    def __init__(self) -> None:
        self.session_id = str(uuid.uuid4())
        self.rows: list[StoredFrame] = []
        self.unpublished: list[StoredFrame] = []
        self.reads = 0

    def task(self) -> Run:
        return Run(self, str(uuid.uuid4()))

    def publish(self) -> None:
        """The hub hears of what was committed."""
        frames, self.unpublished = self.unpublished, []
        hub.committed(frames)

    def session_source(self, heartbeat: float = 60) -> Source:
        return _source(self, "session", self.session_id, heartbeat)

    def numbered(self, kind: Kind, id_: str) -> list[StoredFrame]:
        return self.rows if kind == "session" else [r for r in self.rows if r.task_id == id_]


@dataclass
class Run:
    """One task of the world, as its runner sees it."""

    world: World
    task_id: str

    def __post_init__(self) -> None:
        self.blocks: dict[str, tuple[str, str]] = {}
        """Open blocks: kind and text so far."""

    @property
    def rows(self) -> list[StoredFrame]:
        return self.world.numbered("task", self.task_id)

    def begin(self) -> None:
        rows = self.rows
        hub.running(
            self.task_id,
            self.world.session_id,
            len(rows),
            rows[-1].position if rows else 0,
        )

    def end(self) -> None:
        hub.idle(self.task_id)

    def commit(self, *events: StoredEvent, publish: bool = True) -> None:
        for event in events:
            frame = self._frame(event)
            self.world.rows.append(frame)
            self.world.unpublished.append(frame)
        if publish:
            self.world.publish()

    def live(self, event: LiveEvent) -> None:
        hub.live(self.task_id, self.world.session_id, event)

    def delta(self, block_id: str, text: str, kind: str = "text") -> None:
        so_far = self.blocks.get(block_id, (kind, ""))[1]
        extra: dict[str, Any] = {"index": 0, "name": "read_file"} if kind == "tool_call" else {}
        fields: dict[str, Any] = {
            "step": 1,
            "block_id": block_id,
            "offset": len(so_far),
            "delta": text,
        }
        self.blocks[block_id] = (kind, so_far + text)
        self.live(DELTAS[kind](**fields, **extra))

    def drop_blocks(self) -> None:
        self.blocks.clear()

    def reply(self) -> list[StoredEvent]:
        """The stored events of the blocks that are open, in order, with the call's end."""
        stored = [message(block_id, *block) for block_id, block in self.blocks.items()]
        self.blocks.clear()
        return [*stored, finished()]

    def source(self, heartbeat: float = 60) -> Source:
        return _source(self.world, "task", self.task_id, heartbeat)

    def _frame(self, event: StoredEvent) -> StoredFrame:
        payload = payload_of(event)
        data: dict[str, Any] = {
            "sequence": len(self.rows) + 1,
            "position": len(self.world.rows) + 1,
            "type": event.type,
            "task_id": self.task_id,
            "payload": payload,
        }
        return StoredFrame(
            task_id=self.task_id,
            session_id=self.world.session_id,
            sequence=data["sequence"],
            position=data["position"],
            type=event.type,
            body=b"event: %b\ndata: %b\n\n" % (event.type.encode(), msgspec.json.encode(data)),
            block_id=payload.get("block_id"),
            text=payload.get("text") if "message" in event.type else None,
            tool_call_id=payload["tool_call_id"] if event.type == "tool_call_finished" else None,
        )


def message(block_id: str, kind: str, text: str) -> StoredEvent:
    if kind == "text":
        return AssistantMessageAdded(step=1, block_id=block_id, text=text)
    if kind == "reasoning":
        return ReasoningMessage(step=1, block_id=block_id, text=text)
    return ToolCallRequested(
        step=1,
        tool_call_id=f"call-{block_id}",
        block_id=block_id,
        index=0,
        name="read_file",
        arguments={},
        capability="file:read",
        risk="low",
        decision="allow",
        rule="default",
    )


def finished() -> ModelCallFinished:
    return ModelCallFinished(step=1, finish_reason="stop", usage=Usage(), cost=None, duration_ms=1)


def _source(world: World, kind: Kind, id_: str, heartbeat: float) -> Source:
    async def page(after: int, limit: int) -> list[StoredFrame]:
        world.reads += 1
        found = world.numbered(kind, id_)[after : after + limit]
        # What a query read is older than the moment in which the loop gets it.
        await asyncio.sleep(0)
        return found

    async def greet() -> Greeting:
        rows = world.numbered(kind, id_)
        last = len(rows)
        over = kind == "task" and last > 0 and rows[-1].type.startswith(("task_c", "task_f"))
        over = over and rows[-1].type != "task_created"
        await asyncio.sleep(0)
        return Greeting(last=last, over=over, payload={"last_sequence": last})

    async def check() -> int | None:
        return len(world.numbered(kind, id_))

    return Source(kind=kind, id=id_, page=page, greet=greet, check=check, heartbeat=heartbeat)


class Client:
    """Reads a stream in a task of its own and applies it at once; can be made to pause."""

    def __init__(self, source: Source, cursor: int | None = None) -> None:
        self.reader = Reader(last_id=cursor)
        self.parser = Parser()
        self.largest = 0
        """Bytes of the largest chunk."""
        self.chunks = 0
        self.going = asyncio.Event()
        self.going.set()
        self._moved = asyncio.Event()
        self._stream = follow(source, cursor or 0)
        self.task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for chunk in self._stream:
            self.largest = max(self.largest, len(chunk))
            self.chunks += 1
            for event in self.parser.feed(chunk):
                self.reader.apply(event)
            self._moved.set()
            await self.going.wait()

    async def reached(self, id_: int) -> None:
        while self.reader.last_id != id_:
            await self._moved.wait()
            self._moved.clear()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        await self._stream.aclose()


async def settle(turns: int = 12) -> None:
    """Let everybody who can go on do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


def started(run: int = 1) -> TaskStarted:
    return TaskStarted(run=run, reason="start", model="m", limits={}, mode="ask")


def call_started() -> ModelCallStarted:
    return ModelCallStarted(step=1, model="m", attempt=1)


def retried() -> ModelCallRetried:
    error = ErrorInfo(code="cut", message="The connection was cut.")
    return ModelCallRetried(step=1, attempt=1, error=error, delay_seconds=0.1)


def note(text: str = "and this") -> UserMessageAdded:
    return UserMessageAdded(message_id="m", text=text, by="alice")


async def finish(run: Run, *clients: Client) -> None:
    run.commit(*run.reply(), *END)
    run.end()
    await asyncio.gather(*(client.task for client in clients))


def texts(client: Client) -> list[str]:
    return [e.payload["text"] for e in client.reader.stored if "message" in e.type]


def kinds(client: Client) -> list[str]:
    return [event.type for event in client.reader.live]
