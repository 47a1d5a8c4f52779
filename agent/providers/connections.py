"""Connections that carry one POST after the other, and wait open for the next one. Pure asyncio.

A model's answer is hundreds of small chunks, and a run asks a dozen times: a general HTTP library
makes some ten calls of functions for each chunk and two hundred for each request, this makes none
for a chunk and a score for a request. It does what asking a model needs, and nothing else.

Who waits is told by the event loop, which watches the socket for it. Who comes now and then, as runs
do under load, finds what has come since: the socket is not watched until it had nothing to read.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import zlib
from collections.abc import Awaitable, Mapping
from typing import NamedTuple, cast

from aiohappyeyeballs import start_connection

from agent.providers.http1 import Broken, ResponseParser
from agent.waits import Limit

KEEPALIVE_SECONDS = 15.0
"""Short, so that a server seldom closes a connection just as we send on it."""
MAX_UNREAD_BYTES = 256 * 1024
"""Above that nothing more is read from a TLS connection until somebody takes it."""
READ_BYTES = 64 * 1024
"""Of a socket that is read without the event loop, at once."""
MAX_UNPACKED_BYTES = 1024 * 1024
"""Of what a packed body holds, so much at once."""
HAPPY_EYEBALLS_SECONDS = 0.25
PACKED = frozenset({"gzip", "x-gzip", "deflate"})
"""We ask for a body as it is; some servers pack it all the same."""


class NoConnection(ConnectionError):
    """The server cannot be reached."""


class ConnectTimeout(TimeoutError):
    """The server did not take the connection in time."""


class Place(NamedTuple):
    """Where connections lead."""

    host: str
    port: int
    tls: bool

    @property
    def certified_name(self) -> str:
        """As certificates have it: the dot that makes a name absolute is for looking it up."""
        return self.host.removesuffix(".")


class Connection(asyncio.Protocol):
    """One connection; carries one request at a time."""

    def __init__(self, place: Place, sock: socket.socket) -> None:
        self.place = place
        self._socket = None if place.tls else sock
        """What the transport reads from, where that is the body as it is."""
        self.idle_since = -math.inf
        self._transport: asyncio.Transport | None = None
        self._response: ResponseParser | None = None
        self._trouble: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._unread = 0
        self._paused = False
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # ── for whoever asks ──────────────────────────────────────────────────────────────────────

    @property
    def usable(self) -> bool:
        """Whether another request can be sent on it: not if its server answered before it had read
        the last one, of which it may take the rest for the next."""
        transport, response = self._transport, self._response
        if transport is None or transport.is_closing() or transport.get_write_buffer_size():
            return False
        return response is None or (response.complete and response.reusable)

    async def ask(self, request: bytes) -> ResponseParser:
        """Send a request; its response once the head is here. Raises OSError."""
        assert self._transport is not None
        self._response = response = ResponseParser()
        self._trouble = None
        self._unread = 0  # the last response may have been left with some
        self._resume()
        self._transport.write(request)
        while not response.status:
            await self._more()
        return response

    async def read(self, response: ResponseParser) -> bytes:
        """What has come of the body; waits when nothing has. Empty at its end. Raises OSError."""
        while not response.pieces and not response.complete:
            self._resume()
            await self._more()
        return self.take(response)

    def take(self, response: ResponseParser) -> bytes:
        """What has come of the body, without a wait; empty when nothing has, or at its end."""
        if self._paused:
            if not response.complete:
                self._pull(response)
            if self._socket is None or response.complete:
                self._resume()  # whoever waits for the next request sees when it is closed
        read = b"".join(response.pieces)
        response.pieces.clear()
        self._unread = 0
        return read

    def close(self) -> None:
        """At once, whatever is under way."""
        if self._transport is not None:
            self._transport.abort()

    def _pull(self, response: ResponseParser) -> None:
        """Read on where nobody watches the socket. Its end is for the transport to see."""
        if self._socket is None or self._transport is None or self._transport.is_closing():
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as trouble:  # told once: the transport would take it for the end
            self._fail(trouble)
            return
        if data:
            self._feed(response, data)

    def _pause(self) -> None:
        transport = self._transport
        if not self._paused and transport is not None and not transport.is_closing():
            self._paused = True
            transport.pause_reading()

    def _resume(self) -> None:
        transport = self._transport
        if self._paused and transport is not None and not transport.is_closing():
            self._paused = False
            transport.resume_reading()

    async def _more(self) -> None:
        if self._trouble is not None:
            raise self._trouble
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    # ── for the transport ─────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's are none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        response = self._response
        if response is None or response.complete:
            self.close()  # nobody asked
            return
        self._feed(response, data)
        self._unread += len(data)
        unwatched = self._waiter is None and self._socket is not None
        if (unwatched or self._unread > MAX_UNREAD_BYTES) and not response.complete:
            self._pause()
        self._wake()

    def _feed(self, response: ResponseParser, data: bytes) -> None:
        try:
            response.feed(data)
        except Broken as trouble:
            self._fail(trouble)

    def eof_received(self) -> None:
        if self._response is not None and not self._response.complete:
            try:
                self._response.eof()
            except Broken as trouble:
                self._trouble = trouble
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None and not self._response.complete:
            self._trouble = self._trouble or exc or Broken()
            self._response.end()
        self._wake()
        if not self.lost.done():
            self.lost.set_result(None)

    def _fail(self, trouble: Exception) -> None:
        self._trouble = trouble
        self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Reply:
    """A response whose head is here, on the connection that it holds until it is closed."""

    def __init__(self, pool: Connections, connection: Connection, response: ResponseParser) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._pool, self._connection, self._response = pool, connection, response
        self._packed = response.headers.get("content-encoding", "").strip().lower() in PACKED
        self._unpacker: zlib._Decompress | None = None
        self._tail = b""
        """Packed bytes that were read and not unpacked yet."""
        self._closed = False

    def take(self) -> bytes:
        """What has come of the body, without a wait; empty when nothing has, or at its end. What is
        packed is waited for."""
        return b"" if self._packed else self._connection.take(self._response)

    def read(self) -> Awaitable[bytes]:
        """What has come of the body, unpacked; waits when nothing has. Empty at its end."""
        return self._read_packed() if self._packed else self._connection.read(self._response)

    async def _read_packed(self) -> bytes:
        read = b""
        while not read and (packed := self._tail or await self._connection.read(self._response)):
            read = self._unpack(packed)
        if not read and self._unpacker is not None:
            read = self._unpacker.flush()
        return read

    def _unpack(self, packed: bytes) -> bytes:
        if self._unpacker is not None and self._unpacker.eof:
            return b""  # nothing is packed behind the end; zlib would keep all of it
        if self._unpacker is None:
            zlib_head = packed[0] & 0x0F == zlib.DEFLATED or packed[:1] == b"\x1f"
            self._unpacker = zlib.decompressobj(
                zlib.MAX_WBITS | 32 if zlib_head else -zlib.MAX_WBITS
            )
        try:
            read = self._unpacker.decompress(packed, MAX_UNPACKED_BYTES)
        except zlib.error as trouble:
            raise Broken from trouble
        self._tail = self._unpacker.unconsumed_tail
        return read

    def at_end(self) -> bool:
        """Whether the whole body was read; False when that is not known yet."""
        unpacked = not self._packed or (self._unpacker is not None and self._unpacker.eof)
        return self._response.complete and not self._response.pieces and unpacked

    def close(self) -> None:
        """Give the connection back, or close it when the body was not read to its end."""
        if not self._closed:
            self._closed = True
            self._pool.release(self._connection)


class Connections:
    """Of one event loop. Never makes anybody wait for a free one."""

    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls
        self._idle: dict[Place, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._sweep: asyncio.TimerHandle | None = None

    async def post(self, place: Place, request: bytes, connect_seconds: float) -> Reply:
        """Send the bytes of a request. Raises OSError, of which ConnectTimeout and NoConnection
        say that nothing was sent."""
        waited = self._waiting(place)
        connection = waited or await self._connect(place, connect_seconds)
        try:
            return Reply(self, connection, await connection.ask(request))
        except BaseException as trouble:
            connection.close()  # cancelled, too: an answer would come that nobody takes
            if waited is not None and isinstance(trouble, OSError):
                self._close_waiting(place)
            raise

    def release(self, connection: Connection) -> None:
        """A request is done with it, one way or another."""
        if not connection.usable:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.setdefault(connection.place, []).append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEPALIVE_SECONDS, self._close_idle)

    async def aclose(self) -> None:
        """Close all of them, and see them closed."""
        if self._sweep is not None:
            self._sweep.cancel()
        closing = list(self._open)
        for connection in closing:
            connection.close()
        self._idle.clear()
        if closing:
            await asyncio.wait([connection.lost for connection in closing])

    def _waiting(self, place: Place) -> Connection | None:
        """The one that waits for the shortest time: the others may be closed then."""
        waiting = self._idle.get(place)
        while waiting:
            connection = waiting.pop()
            if connection.usable:
                return connection
        return None

    def _close_waiting(self, place: Place) -> None:
        """One that had waited was closed when it was used: those that wait for longer would be, too,
        and whoever tries again would lose a try to each."""
        for connection in self._idle.pop(place, ()):
            connection.close()

    async def _connect(self, place: Place, seconds: float) -> Connection:
        loop = asyncio.get_running_loop()
        limit = Limit(loop.time() + seconds)
        try:
            with limit:
                sock = await _connected(loop, place)
                _, connection = await loop.create_connection(
                    lambda: Connection(place, sock),
                    sock=sock,
                    ssl=self._tls if place.tls else None,
                    server_hostname=place.certified_name if place.tls else None,
                )
        except TimeoutError as trouble:
            raise ConnectTimeout from trouble
        except (ssl.SSLError, socket.gaierror):
            raise
        except OSError as trouble:
            raise NoConnection from trouble
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def _close_idle(self) -> None:
        """Close what has waited long enough; look again while something waits."""
        loop = asyncio.get_running_loop()
        longest = loop.time() - KEEPALIVE_SECONDS / 2
        for place, waiting in list(self._idle.items()):
            kept = [each for each in waiting if each.usable and each.idle_since > longest]
            for connection in set(waiting) - set(kept):
                connection.close()
            self._idle[place] = kept
            if not kept:
                del self._idle[place]
        self._sweep = (
            loop.call_later(KEEPALIVE_SECONDS / 2, self._close_idle) if self._idle else None
        )


async def _connected(loop: asyncio.AbstractEventLoop, place: Place) -> socket.socket:
    """By the address that answers first. asyncio's loop could do it itself, uvloop's cannot."""
    found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return await start_connection(
        found, happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS, interleave=1, loop=loop
    )
