"""What a follower is given: the log to follow, and how one reader wants it.

Whoever opens a stream makes these, `streaming.follow` uses them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streaming.growing import Seen
from tasks.events import Past
from tasks.hub import Kind, LiveBlock, StoredFrame

CHUNK_BYTES = 64 * 1024
"""Frames are handed on in chunks of about this size."""
Frame = StoredFrame
"""What a page of the log is made of."""


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """Where the log stands when a stream opens; read while somebody listened to its topic, and the
    follower, or whoever opens the stream for it, has listened ever since."""

    last: int
    """The newest event's number."""
    over: bool
    """Nothing will follow it."""
    payload: dict[str, Any]
    """Of the event `connected`."""
    first: Sequence[StoredFrame] = ()
    """The events behind the follower's cursor, when there were few; read in the same look."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The log that is followed. The callables read the database in short hops."""

    kind: Kind
    id: str
    page: Callable[[int, int], Awaitable[list[StoredFrame]]]
    """(after, limit) -> the next stored events."""
    greet: Callable[[], Awaitable[Greeting]]
    check: Callable[[], Awaitable[int | None]]
    """At each heartbeat: the newest event's number, or None when access has ended."""
    heartbeat: float
    past: Callable[[int, int], Awaitable[Past]] | None = None
    """(after, most) -> the next events of a log that is over, in one piece."""


class Extras(Protocol):
    """Frames of one reader's own, between the frames of the log."""

    def after(self, frame: StoredFrame) -> bytes:
        """What follows this stored event at once."""
        ...

    async def level(self, cursor: int) -> bytes:
        """What to say now that everything up to `cursor`, all that is known, has been sent."""
        ...


class Dress(Protocol):
    """How one reader wants what the others get as text: see `streaming.rendering`."""

    def beat(self, kind: Kind, number: int) -> bytes:
        """Instead of the heartbeat's comment: the newest number of the log."""
        ...

    async def prepare(self, frames: Iterable[StoredFrame]) -> None:
        """Make the first chunk of these ready for `stored`."""
        ...

    def stored(self, frame: StoredFrame) -> bytes | None:
        """The frame's lines; None when it is not ready."""
        ...

    def growing(
        self, block: LiveBlock, seen: Seen, *, late: bool, ring: Callable[[], None]
    ) -> bytes:
        """What is new of an open text; `ring` says that there is more."""
        ...
