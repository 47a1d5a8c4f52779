"""Streams outlive the request that asked for them.

Inside Django's handler an open stream keeps everything alive that led to it: the request with its
headers parsed twice, the response, two tasks, the frames of each middleware. Here the handler runs
to its end as for any short answer; what is left of a stream is its head and its chunks, and they
go out from one small loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from django.http import StreamingHttpResponse

from streaming.asgi.headers import Headers, head_of
from streaming.asgi.wire import Message, Receive, Scope, Send

Chunks = AsyncGenerator[bytes, None]


def is_stream(scope: Scope) -> bool:
    """Whether its path is one of the streams' (`streaming.urls`)."""
    path: str = scope["path"]
    return path.startswith("/api/") and (
        path.endswith("/stream") or path.startswith("/api/stream/")
    )


HEADERS = Headers(
    {
        "Cache-Control": "no-cache, no-transform",
        "X-Accel-Buffering": "no",  # nginx passes it on as it comes
        "Content-Encoding": "identity",  # a compressing middleware leaves it alone
    }
)


class EventStream(StreamingHttpResponse):
    """A response that `Request` keeps for later; the handler sends nothing of it."""

    def __init__(self, first: bytes, chunks: Chunks) -> None:
        super().__init__(chunks, content_type="text/event-stream")
        HEADERS.beneath(self)
        self.first = first
        """Taken already: `chunks` has begun, and listens."""
        self.chunks = chunks

    async def __aiter__(self) -> Chunks:
        # Django wraps a generator twice and closes only its own wrapper.
        async with aclosing(self.chunks) as chunks:
            yield self.first
            async for chunk in chunks:
                yield chunk


class Request:
    """The server's two callables as the handler sees them, and the stream that it leaves."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._left = False
        self._took_body = False
        self._chunks: Chunks | None = None
        self._head: Message | None = None
        self._first = b""

    async def take_body(self) -> bool:
        """Wait for the end of the body, which no stream has a use for; False: the client left."""
        while (message := await self.receive())["type"] != "http.disconnect":
            if not message.get("more_body", False):
                self._took_body = True
                return True
        return False

    async def receive(self) -> Message:
        if self._took_body:
            self._took_body = False
            return {"type": "http.request", "body": b"", "more_body": False}
        message = await self._receive()
        # The handler may hear it in the moment in which it ends; nobody says it a second time.
        self._left |= message["type"] == "http.disconnect"
        return message

    async def __call__(self, message: Message) -> None:
        await self._send(message)

    def keep(self, response: EventStream) -> None:
        self._head = head_of(response)
        self._first, self._chunks = response.first, response.chunks

    async def forget(self) -> None:
        """A stream that was kept and not sent, because its request failed, listens no more."""
        if self._chunks is not None:
            await self._chunks.aclose()

    async def finish(self) -> None:
        """Sends the stream, if one was kept, until its end or until the client leaves."""
        head, chunks = self._head, self._chunks
        self._head = self._chunks = None
        if head is None or chunks is None:
            return
        async with aclosing(chunks):
            if not self._left:
                await self._send(head)
                del head
                await self._deliver(chunks)

    async def _deliver(self, chunks: Chunks) -> None:
        task = asyncio.current_task()
        assert task is not None
        sending, left = True, False

        def leave(_: asyncio.Future[Message]) -> None:
            nonlocal left
            if sending:  # it is called a turn after the client left, when this may be over
                left = True
                task.cancel()

        leaving = asyncio.ensure_future(self._receive())
        leaving.add_done_callback(leave)
        first, self._first = _body(self._first), b""
        try:
            await self._send(first)
            del first
            async for chunk in chunks:
                await self._send(_body(chunk))
                del chunk
            # A client who leaves from here on has it all: this must not be cancelled half way.
            sending = False
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not left or task.cancelling() > 1:
                raise
            task.uncancel()
        finally:
            sending = False
            leaving.cancel()
            await asyncio.wait({leaving})


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
