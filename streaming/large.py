"""Pages of a log that several followers want: read once, and large frames held once.

A frame that is larger than the hub's tail is read from the database by each follower that is
behind, and with many of them all at once: each read takes several times the frame's size for a
moment. So one reads and the others wait for what it finds; afterwards a large frame is held
weakly, as one object for all that are sending it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Literal, TypeVar, cast

from streaming.source import Frame
from tasks.lane import in_lane

Kind = Literal["task", "session"]
Place = tuple[str, str, int]
T = TypeVar("T")

LARGE_BYTES = 64 * 1024

_frames: weakref.WeakValueDictionary[Place, Frame] = weakref.WeakValueDictionary()
_reading: dict[Place, asyncio.Future[Any]] = {}
Read = Callable[[int, int], list[Frame]]
Page = Callable[[int, int], Coroutine[Any, Any, list[Frame]]]


def shared(kind: Kind, id_: str, read: Read) -> Page:
    """`read` of one log, in a thread, without reading a page or making a large frame twice."""

    async def page(after: int, limit: int) -> list[Frame]:
        known = _frames.get((kind, id_, after + 1))
        if known is not None:
            return [known]
        rows = await once((kind, id_, after), partial(read, after, limit))
        return [_kept(kind, id_, row) for row in rows]

    return page


async def once(place: Place, read: Callable[[], T]) -> T:
    """What is read there, in a thread, for all who want it while it is read."""
    while (theirs := _reading.get(place)) is not None:
        # An empty page may be older than the event that we were rung for: look ourselves.
        if rows := await asyncio.shield(theirs):
            return cast(T, rows)
    ours = _reading[place] = asyncio.get_running_loop().create_future()
    found: T | None = None
    try:
        found = await in_lane(read)
        return found
    finally:
        # Nothing, if the read failed or its follower left: the next one reads then.
        del _reading[place]
        ours.set_result(found)


def _kept(kind: Kind, id_: str, frame: Frame) -> Frame:
    if len(frame.body) < LARGE_BYTES:
        return frame
    return _frames.setdefault((kind, id_, frame.number(kind)), frame)
