"""Header lines: checked and written down once where all answers get the same, and sent as stored."""

from __future__ import annotations

from collections.abc import Mapping

from django.http.response import HttpResponseBase, ResponseHeaders

from streaming.asgi.wire import Message


class Headers:
    """Setting one header of a response is ten calls of functions; setting all of these is one."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        self._lines = _store(ResponseHeaders(lines))

    def beneath(self, response: HttpResponseBase) -> None:
        """Give them to a response that does not have others by these names."""
        vars(response.headers)["_store"] = self._lines | _store(response.headers)


def head_of(response: HttpResponseBase) -> Message:
    """How an answer begins that sets no cookies. Django asks for each line by its name."""
    lines = _store(response.headers).values()
    return {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": [(name.encode("ascii"), value.encode("latin-1")) for name, value in lines],
    }


def _store(headers: ResponseHeaders) -> dict[str, tuple[str, str]]:
    """Django's own: by the lower name, the name and the value."""
    found: dict[str, tuple[str, str]] = vars(headers)["_store"]
    return found
