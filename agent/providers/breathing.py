"""A body whose bytes are always there already, read without starving the event loop.

Timeouts and cancellation reach a coroutine only where it suspends, and reading what is buffered
does not suspend. Decoding happens above, so this also holds for compressed bytes that say nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

BREATH_SECONDS = 0.01


class Breathing(httpx.AsyncByteStream):
    """`stream`, suspending at least once in `BREATH_SECONDS` of reading."""

    def __init__(self, stream: httpx.AsyncByteStream | httpx.SyncByteStream) -> None:
        assert isinstance(stream, httpx.AsyncByteStream)
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        due = now() + BREATH_SECONDS
        async for read in self._stream:
            if now() >= due:
                await asyncio.sleep(0)
                due = now() + BREATH_SECONDS
            yield read

    async def aclose(self) -> None:
        await self._stream.aclose()
