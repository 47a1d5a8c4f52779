"""From `follow()` to a client of AG-UI: its frames, translated as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing

import msgspec

from streaming import sse
from streaming.agui.blocks import Out
from streaming.agui.translation import LEVEL, Frame, Translation, encode
from streaming.follow import follow
from streaming.source import Frame as StoredFrame
from streaming.source import Source

_decoder = msgspec.json.Decoder(Frame)
_LEVEL = sse.live_frame(LEVEL, {})


async def translated(
    source: Source, after: int, translation: Translation, opening: Sequence[Out]
) -> AsyncGenerator[bytes, None]:
    """`opening`, then the task's log behind `after` and what is live, until the translation ends.

    Ends without a last event when access or the server does: the client may ask for its run again.
    """
    frames = _Frames()
    async with aclosing(follow(source, after, _Level())) as chunks:
        await anext(chunks)  # our own greeting
        yield sse.CONNECTED + b"".join(map(encode, opening))
        async for chunk in chunks:
            parts: list[bytes] = []
            for frame in frames.feed(chunk):
                parts += [sse.HEARTBEAT] if frame is None else map(encode, translation.feed(frame))
                if translation.ended:
                    break
            if parts:
                yield b"".join(parts)
            if translation.ended:
                return


class _Level:
    """Says where the log is level, once for each place (`streaming.source.Extras`)."""

    def __init__(self) -> None:
        self._said = -1

    def after(self, frame: StoredFrame) -> bytes:
        return b""

    async def level(self, cursor: int) -> bytes:
        if cursor == self._said:
            return b""
        self._said = cursor
        return _LEVEL


class _Frames:
    """Puts frames together again: a large one comes in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._half = b""
        """A line end behind the rest: with the next one it would be the frame's."""

    def feed(self, chunk: bytes) -> Iterator[Frame | None]:
        """None is a heartbeat."""
        *blocks, rest = (self._half + chunk).split(b"\n\n")
        self._half = b"\n" if rest.endswith(b"\n") else b""
        rest = rest.removesuffix(b"\n")
        if blocks and self._rest:
            blocks[0] = b"".join([*self._rest, blocks[0]])
            self._rest.clear()
        if rest:
            self._rest.append(rest)
        for block in blocks:
            _, _, data = block.partition(b"data: ")
            yield _decoder.decode(data) if data else None
