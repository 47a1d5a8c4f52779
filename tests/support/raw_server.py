"""A server that says exactly these bytes, and requests of the pool to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from agent.providers.connections import Connections, Place, Reply

ASK = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
HI = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nHi"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Plays one scene for each request that comes, whatever the connection; then the first again."""

    def __init__(self, *scenes: Play, tls: ssl.SSLContext | None = None) -> None:
        self._scenes = scenes
        self._tls = tls
        self._change = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self.asked = self.opened = self.closed = 0

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        port = self._server.sockets[0].getsockname()[1]
        self.place = Place("127.0.0.1", port, self._tls is not None)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()  # since Python 3.12 the server waits for what is left open
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self._writers.add(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                await self._scenes[(self.asked - 1) % len(self._scenes)](reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            async with self._change:
                self.closed += 1
                self._change.notify_all()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def until_closed(self, connections: int) -> None:
        """So many of them by the client."""
        async with asyncio.timeout(10), self._change:
            await self._change.wait_for(lambda: self.closed == connections)


def says(data: bytes) -> Play:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)

    return play


def says_last(data: bytes) -> Play:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        writer.close()

    return play


async def asked(pool: Connections, server: Server, seconds: float = 10) -> Reply:
    return await pool.post(server.place, ASK, seconds)


async def whole(reply: Reply) -> bytes:
    reads = []
    while read := await reply.read():
        reads.append(read)
    assert reply.at_end()
    reply.close()
    return b"".join(reads)
