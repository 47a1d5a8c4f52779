"""Bounds request bodies, declared or not, before anything reads them.

Daphne takes in the whole body before it calls the application, so the bound is given to it, too:
of a longer body it keeps one byte too many, which is enough to be refused here.
"""

from __future__ import annotations

import sys
from typing import Any

from streaming.asgi.wire import App, Message, Receive, Scope, Send, send_error

MAX_BODY = 2 * 1024 * 1024
DISCARD = 8
"""Times the limit that is read and dropped, so that a client who sends before it reads, as most
do, gets the answer rather than a reset connection."""


class BodyLimit:
    """Answers 413 in the one error shape when the body is longer than `limit` bytes."""

    def __init__(self, app: App, limit: int = MAX_BODY) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = _Counted(receive, self._limit)
        if _declared(scope) <= self._limit:
            await self._app(scope, body, send)
            if not body.too_long:
                return
        await body.drop(DISCARD * self._limit)
        text = f"The request body is longer than {self._limit} bytes."
        await send_error(send, 413, "too_large", text)


class _Counted:
    """Receives; a body that grows too long looks to the application like a client who left."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._read = 0
        self._more = True

    @property
    def too_long(self) -> bool:
        return self._read > self._limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._read += len(message.get("body", b""))
        self._more = bool(message.get("more_body", False))
        return {"type": "http.disconnect"} if self.too_long else message

    async def drop(self, most: int) -> None:
        """Reads on to the end of the body, or until it is absurd."""
        while self._more and self._read < most:
            await self()


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else 0
    return 0


def bound_daphne(limit: int = MAX_BODY) -> None:
    """Keeps Daphne, where it serves us, from storing what will be refused anyway."""
    protocol: Any = sys.modules.get("daphne.http_protocol")
    if protocol is None:
        return
    keep = protocol.WebRequest.handleContentChunk

    def keep_some(request: Any, data: bytes) -> None:
        room = limit + 1 - request.content.tell()
        if room > 0:
            keep(request, data[:room])

    protocol.WebRequest.handleContentChunk = keep_some
