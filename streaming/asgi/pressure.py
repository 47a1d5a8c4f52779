"""Back-pressure under Daphne, and a short way to its sockets.

Daphne takes whatever is sent and buffers what the client does not read, without a limit. Here the
sender waits while more than `limit` bytes are unsent, and a client that takes nothing for
`patience` seconds is disconnected; an EventSource comes back by its cursor. Other servers make the
sender wait by themselves and are left alone.

A piece of a stream that has begun is framed here and written to the transport, which is what comes
of it twenty calls of functions further down in Daphne and Twisted.

Relies on internals of Daphne 4.2 and Twisted: the request behind `send`, and the buffer of its
transport. A test with a real Daphne holds that; should they change, sending goes on unguarded.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from dataclasses import dataclass
from typing import Any

from streaming.asgi.wire import App, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

LOOK_EVERY = 64 * 1024
"""Bytes between two looks at the buffer: most responses never look."""
SMALL = 4 * 1024


@dataclass(frozen=True, kw_only=True)
class Pressure:
    """How much may wait, and for how long."""

    limit: int = 256 * 1024
    patience: float = 30
    poll: float = 0.05
    """At most between two looks of one who waits."""


class BackPressure:
    """Must stand next to the server: it reads the `send` that the server gave."""

    def __init__(self, app: App, pressure: Pressure | None = None) -> None:
        self._app = app
        self._pressure = pressure or Pressure()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = _twisted_transport(send)
        if transport is not None:
            send = _Patient(send, _request(send), transport, self._pressure)
        await self._app(scope, receive, send)


class _Patient:
    """Sends, and now and then waits until the client has taken enough."""

    def __init__(self, send: Send, request: Any, transport: Any, pressure: Pressure) -> None:
        self._send = send
        self._request = request
        self._transport = transport
        self._pressure = pressure
        self._unseen = 0
        self._streams = False

    async def __call__(self, message: Message) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        if not (more and body and self._wrote(body)):
            await self._send(message)
        self._unseen += len(body)
        if self._unseen >= LOOK_EVERY:
            self._unseen = 0
            if more:
                await self._wait()

    def _wrote(self, body: bytes) -> bool:
        """Write a chunk, if that is all that there is to do."""
        request = self._request
        if not getattr(request, "chunked", False) or request.finished or request._disconnected:
            return False
        if not self._streams:
            self._streams = True
            # An open stream is mostly silent, and nobody asks again what it was asked with.
            request.requestHeaders, request.clean_headers = type(request.requestHeaders)(), []
        request.sentLength += len(body)
        size = b"%x\r\n" % len(body)
        if len(body) < SMALL:
            push = getattr(self._transport, "push", self._transport.write)  # see `eager`
            push(b"%b%b\r\n" % (size, body))
        else:  # a large one is everybody's, and is not copied for one who may not read it
            self._transport.writeSequence((size, body, b"\r\n"))
        return True

    async def _wait(self) -> None:
        clock = asyncio.get_running_loop().time
        least, since, pause = _unsent(self._transport), clock(), 0.0
        while (unsent := _unsent(self._transport)) > self._pressure.limit:
            if unsent < least:
                least, since = unsent, clock()
            elif clock() - since > self._pressure.patience:
                logger.info("A client took nothing for %s s: cut", self._pressure.patience)
                self._transport.abortConnection()
                return
            # At first only until the loop has come round: what is sent without a pause in between
            # has not been offered to the network yet.
            await asyncio.sleep(pause)
            pause = min(self._pressure.poll, 2 * pause + 0.001)


def _request(send: Send) -> Any | None:
    """What Daphne replies to, if it is Daphne's."""
    return send.args[0] if isinstance(send, functools.partial) and send.args else None


def _twisted_transport(send: Send) -> Any | None:
    """The TCP (or TLS) transport when the server is Daphne, else None."""
    transport = getattr(getattr(_request(send), "channel", None), "transport", None)
    known = hasattr(transport, "abortConnection") and _buffer_owner(transport) is not None
    return transport if known else None


def _buffer_owner(transport: Any) -> Any | None:
    """TLS wraps the transport that holds the buffer."""
    inner = transport if hasattr(transport, "dataBuffer") else getattr(transport, "transport", None)
    return inner if hasattr(inner, "dataBuffer") and hasattr(inner, "_tempDataLen") else None


def _unsent(transport: Any) -> int:
    owner = _buffer_owner(transport)
    if owner is None:
        return 0
    return int(len(owner.dataBuffer) - owner.offset + owner._tempDataLen)
