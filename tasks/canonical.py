"""Canonical JSON: one text for one value, so that a stored payload can be hashed and checked.

UTF-8, no spaces, the keys of every object in the order of their code points, no escapes but those
that JSON demands and \\u2028, \\u2029, \\u0085 (which some readers take for line ends), integers in
full, other numbers in the shortest form that reads back as the same double, NaN and infinities as
null. What JSON cannot say becomes its string; NUL and lone surrogates become U+FFFD.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agent.text import clean


def canonical_json(value: Any) -> str:
    """One text for one value, whatever built it; the module's docstring defines which."""
    try:
        text = _encoder.encode(value).decode()
    except (TypeError, UnicodeEncodeError):  # odd keys, lone surrogates
        text = _encoder.encode(_plain(value)).decode()
    if "\\u0000" in text:
        text = _encoder.encode(_plain(value)).decode()
    if text.isascii():
        return text
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\x85", "\\u0085")


def _as_string(value: Any) -> str:
    return str.__str__(str(value))  # the inner one may give a subclass of str back


_encoder = msgspec.json.Encoder(enc_hook=_as_string, order="sorted")


def _plain(value: Any) -> Any:
    """The same value of storable strings only, with strings as keys."""
    if isinstance(value, str):
        return clean(_as_string(value))
    if isinstance(value, dict):
        return {clean(_as_string(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _plain(msgspec.to_builtins(value, str_keys=True, order="sorted", enc_hook=_as_string))
