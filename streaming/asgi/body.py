"""Bounds request bodies, declared or not, before anything reads them.

Daphne takes in the whole body before it calls the application, so the bound is given to it, too:
of a longer body it keeps one byte too many, which is enough to be refused here. A client who sends
before it reads, as most do, gets the answer rather than a reset connection while what it sends has
measure; whoever sends, or declares, more than that is answered and cut off at once.

Relies on internals of Daphne 4.2 and Twisted; tests with a real Daphne hold them.
"""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from streaming.asgi.wire import App, Message, Receive, Scope, Send, error_messages, send_error

MAX_BODY = 2 * 1024 * 1024
DISCARD = 8
"""Times the limit that is read and dropped."""
DISCARD_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How long a body may be."""

    limit: int = MAX_BODY
    upload: int = MAX_BODY
    """The same where somebody sends a file: a PUT to a path that `uploads` fits whole."""
    uploads: re.Pattern[bytes] | None = None

    def of(self, method: bytes, raw_path: bytes) -> int:
        """By the path as it was sent: Daphne and the application must come to the same answer, or
        what Daphne cut would pass for the whole."""
        if self.uploads is not None and method == b"PUT" and self.uploads.fullmatch(raw_path):
            return self.upload
        return self.limit


class BodyLimit:
    """Answers 413 in the one error shape when the body is longer than `bounds` allow."""

    def __init__(self, app: App, bounds: Bounds | None = None) -> None:
        self._app = app
        self._bounds = bounds or Bounds()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = self._bounds.of(scope["method"].encode(), scope.get("raw_path") or b"")
        body = _Counted(receive, limit)
        declared = _declared(scope)
        if declared <= limit:
            await self._app(scope, body, send)
            if not body.too_long:
                return
        if declared <= DISCARD * limit:
            await body.drop(DISCARD * limit)
        await send_error(send, 413, "too_large", _too_long(limit))


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
        with suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                while self._more and self._read < most:
                    await self()


def _too_long(limit: int) -> str:
    return f"The request body is longer than {limit} bytes."


def _declared(scope: Scope) -> int:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value.lstrip(b"0")[:19] or b"0") if value.isdigit() else 0
    return 0


def bound_daphne(bounds: Bounds | None = None) -> None:
    """Gives the bounds to Daphne, where it serves us; to be called once."""
    protocol: Any = sys.modules.get("daphne.http_protocol")
    if protocol is not None:
        protocol.WebRequest = _bounded(protocol.WebRequest, bounds or Bounds())


def _bounded(request: Any, bounds: Bounds) -> Any:
    """Daphne's class of requests for bodies as long as the bounds allow.

    It keeps one byte too many of a longer one. What is absurd is answered, and the connection
    closed, while it still arrives.
    """

    class Bounded(request):  # type: ignore[misc]  # Daphne has no types
        _seen = 0
        _refused = False
        _limit = bounds.limit

        def __init__(self, *args: Any, **options: Any) -> None:
            # Twisted would parse forms, which nobody reads, and answer broken ones itself.
            super().__init__(*args, parsePOSTFormSubmission=False, **options)

        def gotLength(self, length: int | None) -> None:  # noqa: N802 - Twisted's name
            super().gotLength(length)
            raw_path, _, _ = self.channel._path.partition(b"?")
            self._limit = bounds.of(self.channel._command, raw_path)
            self._count(length or 0)
            self._seen = 0

        def handleContentChunk(self, data: bytes) -> None:  # noqa: N802
            self._count(len(data))
            room = self._limit + 1 - self.content.tell()
            if room > 0 and not self._refused:
                super().handleContentChunk(data[:room])

        def requestReceived(self, *line: bytes) -> None:  # noqa: N802
            if not self._refused:
                super().requestReceived(*line)

        def _count(self, more: int) -> None:
            self._seen += more
            if self._seen > DISCARD * self._limit and not self._refused:
                self._refused = True
                _refuse(self.channel, self._limit)

    return Bounded


def _refuse(channel: Any, limit: int) -> None:
    """Answer in the middle of a request, which Twisted's own way of answering cannot."""
    start, body = error_messages(413, "too_large", _too_long(limit))
    lines = [b"HTTP/1.1 413 Content Too Large", *(b"%b: %b" % pair for pair in start["headers"])]
    channel.transport.write(b"\r\n".join([*lines, b"", body["body"]]))
    channel.loseConnection()
