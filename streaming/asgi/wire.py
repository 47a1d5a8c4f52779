"""ASGI's types, and the one error shape for answers given before Django is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

Scope = dict[str, Any]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Takes the three by position: servers may pass them by name, shims do not."""

Headers = tuple[tuple[bytes, bytes], ...]


async def send_error(
    send: Send, status: int, code: str, message: str, headers: Headers = ()
) -> None:
    """A whole answer; the connection is not used again."""
    for part in error_messages(status, code, message, headers):
        await send(part)


def error_messages(
    status: int, code: str, message: str, headers: Headers = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its start and its body."""
    body = msgspec.json.encode({"error": {"code": code, "message": message}})
    own = (
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    )
    return (
        {"type": "http.response.start", "status": status, "headers": [*own, *headers]},
        {"type": "http.response.body", "body": body, "more_body": False},
    )
