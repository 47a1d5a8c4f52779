"""Large stored frames in this process: one object for all followers that are sending it.

A frame that is larger than the hub's tail is read from the database by each follower that is
behind. Held here weakly, it is read once while anybody needs it, and gone when nobody does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Literal

from streaming.follow import Frame

Kind = Literal["task", "session"]

LARGE_BYTES = 64 * 1024

_frames: weakref.WeakValueDictionary[tuple[str, str, int], Frame] = weakref.WeakValueDictionary()
Read = Callable[[int, int], list[Frame]]


def shared(kind: Kind, id_: str, read: Read) -> Read:
    """`read` of one log, without making a large frame twice."""

    def page(after: int, limit: int) -> list[Frame]:
        known = _frames.get((kind, id_, after + 1))
        return (
            [known] if known is not None else [_kept(kind, id_, row) for row in read(after, limit)]
        )

    return page


def _kept(kind: Kind, id_: str, frame: Frame) -> Frame:
    if len(frame.body) < LARGE_BYTES:
        return frame
    return _frames.setdefault((kind, id_, frame.number(kind)), frame)
