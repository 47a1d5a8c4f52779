"""Server-Sent Events on the wire: what goes out as bytes, and the cursor that comes back in.

Pure. `data:` is always one line of JSON: line ends inside strings are escaped by JSON, and the
three characters that some readers take for line ends (U+2028, U+2029, U+0085) are escaped here.
What JSON cannot say becomes its string.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent.text import MAX_DEPTH, clean
from tasks.errors import Invalid

MAX_CURSOR_DIGITS = 100
"""More digits are not a number that anybody was given."""

CONNECTED = b": connected\n\n"
HEARTBEAT = b": heartbeat\n\n"

_LINE_ENDS = (
    (b"\xe2\x80\xa8", rb"\u2028"),
    (b"\xe2\x80\xa9", rb"\u2029"),
    (b"\xc2\x85", rb"\u0085"),
)
_encoder = msgspec.json.Encoder(enc_hook=lambda value: clean(str(value)))


def stored_frame(number: int, body: bytes) -> bytes:
    """A stored event with its id on this stream; `body` is encoded once for all streams."""
    return b"id: %d\n%b" % (number, body)


def live_frame(type_: str, payload: dict[str, Any], task_id: str | None = None) -> bytes:
    """An event that is not stored: sequence 0 and no id, so that the cursor stays where it is."""
    data: dict[str, Any] = {"sequence": 0, "type": type_}
    if task_id is not None:
        data["task_id"] = task_id
    data["payload"] = payload
    return b"event: %b\ndata: %b\n\n" % (type_.encode(), encode(data))


def retry(milliseconds: int) -> bytes:
    """How long a browser waits before it comes back."""
    return b"retry: %d\n\n" % milliseconds


def encode(value: Any) -> bytes:
    """One line of JSON, non-ASCII unescaped."""
    try:
        text = _encoder.encode(value)
    except (UnicodeEncodeError, RecursionError):
        text = _encoder.encode(_tame(value))
    return text if text.isascii() else _escape_line_ends(text)


def _escape_line_ends(text: bytes) -> bytes:
    for raw, escaped in _LINE_ENDS:
        # In UTF-8 no character contains another: replacing bytes replaces exactly the character.
        text = text.replace(raw, escaped)
    return text


def _tame(value: Any, depth: int = 0) -> Any:
    """The slow way, for lone surrogates and for what is nested without end."""
    if isinstance(value, str):
        return clean(value)
    if not isinstance(value, dict | list | tuple | set | frozenset):
        return value
    if depth == MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {clean(str(key)): _tame(item, depth + 1) for key, item in value.items()}
    return [_tame(item, depth + 1) for item in value]


def parse_cursor(header: str | None, *queries: str | None) -> int:
    """The number after which a client wants to go on.

    The `Last-Event-ID` header wins over the query, because a browser that comes back repeats the
    first URL. Nothing, or an empty value, is the start. White space around a header's value is
    not part of it; anything but ASCII digits raises Invalid.
    """
    for given in (header.strip(" \t") if header else header, *queries):
        if given:
            return _number(given)
    return 0


def _number(text: str) -> int:
    if len(text) <= MAX_CURSOR_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    raise Invalid("invalid_cursor", "A cursor is the id of an event: a whole number from 0 on.")
