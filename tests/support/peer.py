"""The server's side of a request to an ASGI application, without a server."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from streaming.asgi.wire import App, Message, Receive, Scope, Send

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
REQUEST = {"type": "http.request", "body": b"", "more_body": False}


class Peer:
    """The server's side of one request."""

    def __init__(self, *messages: Message) -> None:
        self.sent: list[Message] = []
        self.has_body = asyncio.Event()
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages or (REQUEST,):
            self.inbox.put_nowait(message)

    async def receive(self) -> Message:
        return await self.inbox.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.has_body.set()

    def call(self, app: App, path: str = "/") -> asyncio.Task[None]:
        async def request() -> None:
            await app({**SCOPE, "path": path}, self.receive, self.send)

        return asyncio.create_task(request())

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


def client(app: Any, *, raises: bool = False) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
    return httpx.AsyncClient(transport=transport, base_url="http://testserver", timeout=20)


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})
