"""A body that is read in a thread, block by block, as fast as its reader takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import IO

BLOCK_BYTES = 256 * 1024


class Blocks:
    """Blocks for the event loop; closed behind the last one, or by Django when the reader left."""

    def __init__(self, blocks: Iterator[bytes], close: Callable[[], None]) -> None:
        self._blocks = blocks
        self.close = close

    @classmethod
    def of(cls, file: IO[bytes]) -> Blocks:
        """The rest of a file."""
        return cls(iter(lambda: file.read(BLOCK_BYTES), b""), file.close)

    def __aiter__(self) -> Blocks:
        return self

    async def __anext__(self) -> bytes:
        block = await asyncio.to_thread(next, self._blocks, b"")
        if not block:
            self.close()
            raise StopAsyncIteration
        return block
