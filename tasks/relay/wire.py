"""What processes say to each other: parts of the live state and stored events, as bytes.

A message carries parts of one session in the order in which they happened. A stored event that is
too large for it goes by reference: whoever needs it reads the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.events import AssistantDelta, Delta, LiveEvent, ReasoningDelta, ToolCallDelta
from tasks.hub import LiveBlock, StoredFrame

PIECE_CHARS = 16 * 1024
"""The most text in one part."""
MESSAGE_BYTES = 64 * 1024
"""Parts are gathered into messages of about this size; larger stored events go by reference."""


class Live(msgspec.Struct, frozen=True, kw_only=True, tag="live", array_like=True):
    """More of a block, or a progress."""

    task_id: str
    after: tuple[int, int]
    """The task's last event when it began: sequence and position."""
    event: LiveEvent
    late: bool = False
    """It was asked for."""


class Stored(msgspec.Struct, frozen=True, kw_only=True, tag="stored", array_like=True):
    """An event was committed."""

    frame: StoredFrame


class Advanced(msgspec.Struct, frozen=True, kw_only=True, tag="advanced", array_like=True):
    """An event was committed that is too large to come along."""

    task_id: str
    sequence: int
    position: int


Part = Live | Stored | Advanced

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Part)


def encode(part: Part) -> bytes:
    return _encoder.encode(part)


def decode(data: bytes) -> Part:
    part: Part = _decoder.decode(data)
    return part


def stored(frame: StoredFrame) -> Part:
    """The event, or where to read it."""
    if len(frame.body) + len(frame.text or "") <= MESSAGE_BYTES:
        return Stored(frame=frame)
    return Advanced(task_id=frame.task_id, sequence=frame.sequence, position=frame.position)


def pieces(block: LiveBlock, start: int, *, late: bool = False) -> Iterator[Live]:
    """What a block holds from `start` on."""
    while text := block.slice(start, PIECE_CHARS):
        yield Live(
            task_id=block.task_id,
            after=(block.after.sequence, block.after.position),
            event=_delta(block, start, text),
            late=late,
        )
        start += len(text)


def _delta(block: LiveBlock, start: int, text: str) -> Delta:
    step, block_id = block.step, block.block_id
    match block.kind:
        case "text":
            return AssistantDelta(step=step, block_id=block_id, offset=start, delta=text)
        case "reasoning":
            return ReasoningDelta(step=step, block_id=block_id, offset=start, delta=text)
        case "tool_call":
            return ToolCallDelta(
                step=step,
                block_id=block_id,
                index=block.index,
                name=block.name,
                offset=start,
                delta=text,
            )
