"""`?render=html`: what a page gets instead of raw text (docs/pages.md).

A growing text is rendered at most five times a second, in the threads of `tasks.render`, once for
all who read it: `LiveText` has its settled pieces and the look of the open part, a follower only
remembers how many pieces it has. Messages of the log are rendered before they are asked for, so that
`follow()` never waits between look and encode.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from streaming import sse
from streaming.growing import FRAME_BYTES, FRAME_CHARS, Block, Seen
from streaming.source import CHUNK_BYTES, Frame
from tasks.events import with_html
from tasks.render import Growth, Step, rendered, shelf, submit

PACE_SECONDS = 0.2
"""Between two renderings of one text."""
SHARE = 5
"""A rendering that took t is not followed by another within SHARE times t: long texts slow down."""

Ring = Callable[[], None]


class Html:
    """How one page wants it: the dress of a follower (`streaming.source.Dress`)."""

    def __init__(self) -> None:
        self._ready: dict[tuple[str, int], str] = {}

    def beat(self, kind: str, number: int) -> bytes:
        name = "last_sequence" if kind == "task" else "position"
        return sse.live_frame("heartbeat", {name: number})

    async def prepare(self, frames: Iterable[Frame]) -> None:
        wanted = {_key(frame): frame.text for frame in _one_chunk(frames) if _is_answer(frame)}
        for text in wanted.values():
            shelf.find(text or "")  # all begin before the first is waited for
        self._ready = {key: await rendered(text or "") for key, text in wanted.items()}

    def stored(self, frame: Frame) -> bytes | None:
        if not _is_answer(frame):
            return frame.body
        html = self._ready.get(_key(frame))
        return None if html is None else with_html(frame.body, html)

    def growing(self, block: Block, seen: Seen, *, late: bool, ring: Ring) -> bytes:
        shown = _shown.get(block)
        if shown is None:
            shown = _shown[block] = LiveText()
        shown.watch(block, ring)
        if shown.version in (0, seen.version):
            return shown.rest(block, seen)
        if late and not seen.version:
            return shown.snapshot(block, seen)
        return shown.next(block, seen)


def _is_answer(frame: Frame) -> bool:
    return frame.type == "assistant_message"


def _key(frame: Frame) -> tuple[str, int]:
    return frame.task_id, frame.sequence


def _one_chunk(frames: Iterable[Frame]) -> Iterable[Frame]:
    size = 0
    for frame in frames:
        yield frame
        size += len(frame.body)
        if size >= CHUNK_BYTES:
            return


class LiveText:
    """The rendering of one open text, shared by all who follow it as HTML."""

    def __init__(self) -> None:
        self.version = 0
        """Of what is shown; 0 is nothing yet."""
        self._pieces: list[str] = []
        self._tail = ""
        self._length = 0
        """Characters that are shown."""
        self._settled = 0
        """Characters that are in the pieces."""
        self._growth = Growth()
        self._frames: dict[int, tuple[int, bytes]] = {}
        """Number of pieces a follower has -> (how many it has then, frame)."""
        self._waiting: set[Ring] = set()
        self._busy: asyncio.TimerHandle | asyncio.Future[Step] | None = None
        self._next_at = 0.0

    def watch(self, block: Block, ring: Ring) -> None:
        """Ring when there is more to show than now."""
        if block.length == self._length:
            return
        self._waiting.add(ring)
        if self._busy is None:
            loop = asyncio.get_running_loop()
            self._busy = loop.call_at(max(self._next_at, loop.time()), self._begin, block)

    def _begin(self, block: Block) -> None:
        text = block.slice(self._settled, block.length)
        job = asyncio.wrap_future(submit(self._growth.step, text))
        job.add_done_callback(partial(self._done, block.length, job.get_loop().time()))
        self._busy = job

    def _done(self, length: int, began: float, job: asyncio.Future[Step]) -> None:
        self._busy = None
        if job.cancelled():  # the loop ends
            return
        step, now = job.result(), job.get_loop().time()
        if step.piece:
            self._pieces.append(step.piece)
        self._settled += step.taken
        self._tail, self._length = step.tail, length
        self._frames.clear()
        self._next_at = max(began + PACE_SECONDS, now + (now - began) * SHARE)
        self.version += 1
        waiting, self._waiting = self._waiting, set()
        for ring in waiting:
            ring()

    def rest(self, block: Block, seen: Seen) -> bytes:
        """What did not fit into the last frame."""
        behind = self.version and 0 <= seen.offset < len(self._pieces)
        return self.next(block, seen) if behind else b""

    def snapshot(self, block: Block, seen: Seen) -> bytes:
        """For one who comes late; the next frame begins from the first piece again."""
        seen.version, seen.offset = self.version, -1
        to, html = self._some(0)
        payload: dict[str, Any] = {"step": block.step, "block_id": block.block_id, "kind": "text"}
        payload["text"] = block.slice(0, min(self._length, FRAME_CHARS // 4))
        payload["html"] = html + self._tail_at(to)
        return sse.live_frame("snapshot", payload, block.task_id)

    def next(self, block: Block, seen: Seen) -> bytes:
        have = max(seen.offset, 0)
        if have not in self._frames:
            self._frames[have] = self._encode(block, have)
        seen.version = self.version
        seen.offset, frame = self._frames[have]
        return frame

    def _encode(self, block: Block, have: int) -> tuple[int, bytes]:
        to, html = self._some(have)
        payload: dict[str, Any] = {"step": block.step, "block_id": block.block_id}
        payload |= {"from": have, "to": to, "html": html, "tail": self._tail_at(to)}
        return to, sse.live_frame("assistant_render", payload, block.task_id)

    def _some(self, have: int) -> tuple[int, str]:
        """As many pieces as fit into a frame, at least one."""
        to, size = have, 0
        while to < len(self._pieces) and (to == have or size < FRAME_BYTES):
            size += len(self._pieces[to])
            to += 1
        return to, "".join(self._pieces[have:to])

    def _tail_at(self, to: int) -> str:
        return self._tail if to == len(self._pieces) else ""


_shown: WeakKeyDictionary[Block, LiveText] = WeakKeyDictionary()
"""As long as the block is open or somebody is still reading it."""
