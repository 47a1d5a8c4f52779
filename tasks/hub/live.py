"""The live state of a run: the blocks of the reply that is being written, and progress of calls.

One object of each for all topics and followers. A follower keeps an offset and reads from there,
so a block can leave the hub while somebody is still behind in it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal, NamedTuple

import msgspec

from agent.events import AssistantDelta, Delta, ReasoningDelta, ToolCallDelta, ToolProgress

PIECE_CHARS = 1024
"""Deltas are glued to pieces of at least this size: few objects, and still a cheap append."""

Kind = Literal["task", "session"]
BlockKind = Literal["text", "reasoning", "tool_call"]
LiveKey = tuple[str, str]
"""Task id and block id, or task id and tool_call_id."""

_KINDS: dict[type[Delta], BlockKind] = {
    AssistantDelta: "text",
    ReasoningDelta: "reasoning",
    ToolCallDelta: "tool_call",
}


class After(NamedTuple):
    """The last event of the task when a live entry began: followers get that event first."""

    sequence: int
    position: int

    def number(self, kind: Kind) -> int:
        return self.sequence if kind == "task" else self.position


class LiveBlock:
    """The growing text of an open block; one object for all topics and followers."""

    __slots__ = (
        "__weakref__",
        "_pieces",
        "_starts",
        "after",
        "block_id",
        "head",
        "index",
        "kind",
        "length",
        "memo",
        "name",
        "opened",
        "step",
        "task_id",
    )

    def __init__(self, task_id: str, first: Delta, after: After, opened: int) -> None:
        self.task_id = task_id
        self.block_id = first.block_id
        self.kind: BlockKind = _KINDS[type(first)]
        self.step = first.step
        self.index, self.name = 0, ""
        if isinstance(first, ToolCallDelta):
            self.index, self.name = first.index, first.name
        self.after = after
        self.opened = opened
        """Serial number: who began to listen later is a late joiner."""
        self.length = 0
        """In Unicode code points."""
        self.memo: tuple[int, int, int, bytes] | None = None
        """(from, length then, to, frame) of the last encoding; followers in step share it."""
        self.head: tuple[str, bytes] | None = None
        """The name then, and how each frame of the block begins."""
        self._pieces: list[str] = []
        self._starts: list[int] = []

    def apply(self, event: Delta) -> bool:
        """Append a delta if it starts where the text ends; anything else is old or has a hole."""
        if event.offset != self.length or not event.delta:
            return False
        if isinstance(event, ToolCallDelta):
            self.name = event.name
        self._append(event.delta)
        return True

    def overlap(self, event: Delta) -> None:
        """Append what is new of a delta that starts within the text, or at its end."""
        new = event.delta[self.length - event.offset :]
        self.apply(msgspec.structs.replace(event, offset=self.length, delta=new))

    def finish(self, text: str) -> None:
        """Complete it with the stored text, for followers that are still behind."""
        if len(text) > self.length:
            self._append(text[self.length :])

    def _append(self, text: str) -> None:
        if self._pieces and len(self._pieces[-1]) < PIECE_CHARS:
            self._pieces[-1] += text
        else:
            self._starts.append(self.length)
            self._pieces.append(text)
        self.length += len(text)

    def slice(self, start: int, limit: int) -> str:
        """At most `limit` characters from `start`; the cost depends on their number alone."""
        end = min(self.length, start + limit)
        if start >= end:
            return ""
        if start >= self._starts[-1]:  # who keeps pace is in the newest piece
            return self._pieces[-1][start - self._starts[-1] : end - self._starts[-1]]
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1)
        origin = self._starts[first]
        return "".join(self._pieces[first:last])[start - origin : end - origin]


class Progress:
    """The latest progress of a running tool call."""

    __slots__ = ("after", "event", "memo", "task_id", "version")

    def __init__(self, task_id: str, event: ToolProgress, after: After, version: int) -> None:
        self.task_id = task_id
        self.event = event
        self.after = after
        self.version = version
        """Grows with every progress; a follower remembers what it has sent."""
        self.memo: bytes | None = None
