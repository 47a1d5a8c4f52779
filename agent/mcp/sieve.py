"""What a server says, held to a measure: only answers come through freely.

A request of the server (it has no right to one but `ping`) or a progress note passes now and then,
other notices are dropped. All of it is counted: who says far too much loses the connection. Each
message is asked about once: `Pipes` does it line by line, `Sifted` for a transport of the SDK.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import anyio
from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

MAX_SAID = 64 * 1024 * 1024
"""Bytes since our last request."""
PAUSE_BYTES = 1024 * 1024
PAUSE_SECONDS = 0.02
"""Who floods us waits for us, not the other way round."""
ASIDE_SECONDS = 0.1
"""Between two requests that pass, and between two progress notes."""
MESSAGE_BYTES = 1024
"""What a message counts that is parsed."""
LIST_CHANGED = "notifications/tools/list_changed"
PROGRESS = "notifications/progress"


class TooMuch(Exception):
    """It says far more than it was asked."""


class Sieve:
    """One connection's measure."""

    def __init__(self) -> None:
        self.list_changed = False
        """It says that its tools are others now."""
        self._said = 0
        self._paused_at = 0
        self._passed_at: dict[bool, float] = {}
        """When the last request (True) and the last progress note (False) passed: each has a measure
        of its own, or a `ping` right behind a note would never be answered."""

    def asked(self) -> None:
        """We send a request: the count begins anew."""
        self._said = self._paused_at = 0

    async def heard(self, size: int) -> None:
        """Count bytes that came. Raises TooMuch."""
        self._said += size
        if self._said > MAX_SAID:
            raise TooMuch
        if self._said - self._paused_at > PAUSE_BYTES:
            self._paused_at = self._said
            await asyncio.sleep(PAUSE_SECONDS)

    def admits(self, method: str, *, asks: bool) -> bool:
        """Whether a request (`asks`) or a notice passes. What passes takes the place of the next
        one: do not ask twice about the same."""
        if method == LIST_CHANGED:
            self.list_changed = True
        if not asks and method != PROGRESS:
            return False
        now = asyncio.get_running_loop().time()
        if now - self._passed_at.get(asks, float("-inf")) < ASIDE_SECONDS:
            return False
        self._passed_at[asks] = now
        return True

    def passes(self, message: JSONRPCMessage) -> bool:
        """The same for a message that is parsed already; an answer always does."""
        if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
            return True
        return self.admits(message.method, asks=isinstance(message, JSONRPCRequest))


class Sifted:
    """A transport's stream of messages through a sieve."""

    def __init__(self, stream: ReadStream[SessionMessage | Exception], sieve: Sieve) -> None:
        self._stream = stream
        self._sieve = sieve

    async def receive(self) -> SessionMessage | Exception:
        while True:
            item = await self._stream.receive()
            await self._sieve.heard(MESSAGE_BYTES)
            if not isinstance(item, Exception) and self._sieve.passes(item.message):
                return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except (anyio.EndOfStream, TooMuch):
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stream.aclose()
