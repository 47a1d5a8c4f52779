"""What grows before it is stored, as frames: the text of open blocks, the progress of tools.

Each frame carries at most `FRAME_BYTES` of text, and is encoded once for all followers that stand at
the same place.
"""

from __future__ import annotations

from typing import Any

from agent.events import payload_of
from streaming import sse
from tasks.hub import LiveBlock, Progress

FRAME_BYTES = 64 * 1024
"""The most text that one frame carries, in UTF-8."""
FRAME_CHARS = FRAME_BYTES

Block = LiveBlock
"""What grows before it is stored."""

_DELTA_TYPES = {
    "text": "assistant_delta",
    "reasoning": "reasoning_delta",
    "tool_call": "tool_call_delta",
}
_DELTA, _END = b',"delta":', b"}}\n\n"
"""What is between the offset and the text of a delta's frame, and behind it."""


class Seen:
    """How much of a block a follower has sent. Outlives the block's place in the hub."""

    __slots__ = ("block", "offset", "version")

    def __init__(self, block: LiveBlock) -> None:
        self.block = block
        self.offset = 0
        self.version = 0
        """Of a dressed text: which look of it was sent; `offset` counts its pieces then."""


def snapshot(seen: Seen) -> bytes:
    """All of a block so far, for one who comes late."""
    block = seen.block
    text = _piece(block, 0)
    seen.offset = len(text)
    payload: dict[str, Any] = {"step": block.step, "block_id": block.block_id, "kind": block.kind}
    if block.kind == "tool_call":
        payload |= {"index": block.index, "name": block.name}
    return sse.live_frame("snapshot", payload | {"text": text}, block.task_id)


def delta(seen: Seen) -> bytes:
    """The next piece of a block; encoded once for all followers that stand at the same place."""
    block, start = seen.block, seen.offset
    if start >= block.length:
        return b""
    memo = block.memo
    if memo is None or memo[0] != start or memo[1] != block.length:
        memo = block.memo = _encode_delta(block, start)
    seen.offset = memo[2]
    return memo[3]


def progress(entry: Progress) -> bytes:
    """What a tool said last."""
    if entry.memo is None:
        payload = payload_of(entry.event)
        entry.memo = sse.live_frame("tool_progress", payload, entry.task_id)
    return entry.memo


def _encode_delta(block: LiveBlock, start: int) -> tuple[int, int, int, bytes]:
    text = _piece(block, start)
    if block.head is None or block.head[0] != block.name:
        block.head = block.name, _head(block)
    frame = b"%b%d%b%b%b" % (block.head[1], start, _DELTA, sse.encode(text), _END)
    return start, block.length, start + len(text), frame


def _head(block: LiveBlock) -> bytes:
    """A delta's frame up to its offset, which is the first thing that differs from the last one."""
    payload: dict[str, Any] = {"step": block.step, "block_id": block.block_id}
    if block.kind == "tool_call":
        payload |= {"index": block.index, "name": block.name}
    payload |= {"offset": 0, "delta": ""}
    frame = sse.live_frame(_DELTA_TYPES[block.kind], payload, block.task_id)
    return frame.removesuffix(b'0%b""%b' % (_DELTA, _END))


def _piece(block: LiveBlock, start: int) -> str:
    text = block.slice(start, FRAME_CHARS)
    if text.isascii() or len(text.encode()) <= FRAME_BYTES:
        return text
    return text[: FRAME_BYTES // 4]
