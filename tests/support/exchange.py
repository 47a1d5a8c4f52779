"""One request to the application, as an ASGI server makes it, and what came back so far."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

from streaming.asgi.lanes import LaneHandler


class Exchange:
    """Runs in a task of its own until the application has answered or the client leaves."""

    def __init__(
        self,
        app: LaneHandler,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.reading = asyncio.Event()
        """Cleared: the client does not take what is sent."""
        self.reading.set()
        self._request: bytes | None = body
        self._changed = asyncio.Condition()
        self._left = asyncio.Event()
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "headers": [
                (name.lower().encode(), value.encode())
                for name, value in {"host": "127.0.0.1", **headers}.items()
            ],
        }
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._request is not None:
            body, self._request = self._request, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self.reading.wait()
        async with self._changed:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            else:
                body = message.get("body", b"")
                self.body += body
                if self.headers.get("content-type") == "text/event-stream":
                    self.streamed(body)
            self._changed.notify_all()

    def streamed(self, body: bytes) -> None:
        """A piece of a stream of events came."""

    async def once(self, holds: Callable[[], bool]) -> Self:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(holds)
        return self

    async def end(self) -> Self:
        async with asyncio.timeout(10):
            await asyncio.shield(self.task)
        return self

    async def leave(self) -> None:
        self._left.set()
        await self.end()
