"""Header lines that are checked and written down once, for answers that all get the same."""

from __future__ import annotations

from collections.abc import Mapping

from django.http.response import HttpResponseBase, ResponseHeaders


class Headers:
    """Setting one header of a response is ten calls of functions; setting all of these is one."""

    def __init__(self, lines: Mapping[str, str]) -> None:
        self._lines = _store(ResponseHeaders(lines))

    def beneath(self, response: HttpResponseBase) -> None:
        """Give them to a response that does not have others by these names."""
        vars(response.headers)["_store"] = self._lines | _store(response.headers)


def _store(headers: ResponseHeaders) -> dict[str, tuple[str, str]]:
    """Django's own: by the lower name, the name and the value."""
    found: dict[str, tuple[str, str]] = vars(headers)["_store"]
    return found
