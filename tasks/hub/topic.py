"""What the followers of one task or session share: the tail of the log, the live state, the bells."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from agent.events import TERMINAL_TYPES, LiveEvent, ToolProgress
from tasks.hub.live import After, Kind, LiveBlock, LiveKey, Progress

TAIL_FRAMES = 256
TAIL_BYTES = 1024 * 1024

BLOCKS_END_TYPES = TERMINAL_TYPES | {
    "model_call_finished",
    "model_call_retried",
    "task_recovered",
    "task_started",
}
"""After one of these an open block without its stored message never happened."""


class Key(NamedTuple):
    """What a topic is about; ids are canonical UUID strings."""

    kind: Kind
    id: str


class StoredFrame(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """A committed event, encoded once for all followers of its task and its session."""

    task_id: str
    session_id: str
    sequence: int
    position: int
    type: str
    body: bytes
    """`event: …` and `data: …` lines with the closing blank line; the `id:` line is the stream's."""
    block_id: str | None = None
    """Of a message or call that completes a block."""
    text: str | None = None
    """The whole text of that block, unless it is a tool call."""
    tool_call_id: str | None = None
    """Of `tool_call_finished`."""

    def number(self, kind: Kind) -> int:
        """Its id on a stream of that kind."""
        return self.sequence if kind == "task" else self.position


class Bell:
    """Wakes one follower. Rung before the wait, it does not wait."""

    __slots__ = ("_loop", "_waiter", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """Of who waits; to ask for it is a system call."""
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        self.rung = False

    async def wait(self) -> None:
        if self.rung:
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Topic:
    """What the followers of one task or session share."""

    def __init__(self, key: Key) -> None:
        self.key = key
        self.last = 0
        """The highest number known to be committed."""
        self.live: dict[LiveKey, LiveBlock] = {}
        self.progress: dict[LiveKey, Progress] = {}
        self.bells: set[Bell] = set()
        self.runs: set[str] = set()
        """Task ids with a run in this process."""
        self._over: dict[str, int] = {}
        """Task id -> newest event that ended all its blocks."""
        self._done: dict[LiveKey, int] = {}
        """Tool calls that have finished since."""
        self._tail: deque[StoredFrame] = deque()
        self._tail_bytes = 0

    def after(self, cursor: int) -> Iterator[StoredFrame]:
        """Frames after `cursor` from the tail; nothing when the tail does not reach back so far."""
        if not self._tail:
            return iter(())
        skip = cursor + 1 - self._tail[0].number(self.key.kind)
        return iter(()) if skip < 0 else islice(self._tail, skip, None)

    def append(self, frame: StoredFrame) -> None:
        """Keep a committed frame. The tail never has a hole: one that does not fit starts it anew."""
        number = frame.number(self.key.kind)
        self.last = max(self.last, number)
        if self._tail:
            newest = self._tail[-1].number(self.key.kind)
            if number <= newest:
                return
            if number != newest + 1:
                self._tail.clear()
                self._tail_bytes = 0
        self._tail.append(frame)
        self._tail_bytes += len(frame.body)
        while len(self._tail) > TAIL_FRAMES or self._tail_bytes > TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft().body)

    def settle(self, frame: StoredFrame) -> None:
        """Drop the live state that this event ends.

        Judged by the event's number, so repeating it, or reading old events, drops nothing new.
        """
        if frame.block_id is not None:
            self._complete(frame, (frame.task_id, frame.block_id))
        if frame.type in BLOCKS_END_TYPES:
            self._note_over(frame)
            _drop(self.live, frame)
            _drop(self.progress, frame)
        elif frame.type == "tool_call_finished":
            if frame.tool_call_id is None:
                _drop(self.progress, frame)
            else:
                self._done[frame.task_id, frame.tool_call_id] = frame.sequence
                self.progress.pop((frame.task_id, frame.tool_call_id), None)

    def _note_over(self, frame: StoredFrame) -> None:
        self._over[frame.task_id] = max(frame.sequence, self._over.get(frame.task_id, 0))
        for key in [key for key in self._done if key[0] == frame.task_id]:
            del self._done[key]

    def knows_end(self, task_id: str, event: LiveEvent, after: After) -> bool:
        """Whether what this belongs to has ended: what other processes say may come late."""
        if isinstance(event, ToolProgress) and (task_id, event.tool_call_id) in self._done:
            return True
        return after.sequence < self._over.get(task_id, 0)

    def _complete(self, frame: StoredFrame, key: LiveKey) -> None:
        block = self.live.get(key)
        if block is not None and block.after.sequence < frame.sequence:
            if frame.text is not None:
                block.finish(frame.text)
            del self.live[key]

    def forget(self, task_id: str) -> None:
        """Drop all live state of a task."""
        for entries in (self.live, self.progress):
            for key in [key for key in entries if key[0] == task_id]:
                del entries[key]

    def ring(self) -> None:
        for bell in self.bells:
            bell.ring()


def _drop(entries: dict[LiveKey, LiveBlock] | dict[LiveKey, Progress], frame: StoredFrame) -> None:
    """Drop what began before this event of its task."""
    ended = [
        key
        for key, entry in entries.items()
        if key[0] == frame.task_id and entry.after.sequence < frame.sequence
    ]
    for key in ended:
        del entries[key]
