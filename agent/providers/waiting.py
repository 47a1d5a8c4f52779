"""How long a server that refuses asks us to wait: in a header, in a field, or in its words. Pure.

A number is seconds, unless its name says milliseconds; a time with units is one as people and Go
write it: `20s`, `1m12.5s`, `6m0s`, `350ms`, `2 minutes`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = 3600.0
"""Of waits that only words or fields name."""
MAX_WORDS = 16 * 1024
"""Characters of a message that are looked at; the longest that name a wait have a thousand or two."""
_A_DATE = 1e8
"""A bare number of a field that is larger is no wait of three years."""
_NEVER = 1e12
_UNITS = {"ms": 0.001, "mil": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PIECE = r"\d+(?:\.\d+)?\s?(?:ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)(?![a-z])"
_TIME = rf"(?:{_PIECE}\s?)+"
_ASKED = re.compile(
    r"(?:try again|retry|(?<![a-z])wait(?!ed|ing)"  # not how long somebody waited
    r"|(?<!connection )(?<!connection was )reset\w{0,20})"
    rf"\D{{0,20}}?({_TIME})",
    re.IGNORECASE,
)
_FIELDS = {
    "retry_after": 1.0,
    "retryAfter": 1.0,
    "retryDelay": 1.0,
    "retry_after_seconds": 1.0,
    "retry_after_ms": 0.001,
}
"""Where servers name it in what they answer, and what a bare number counts there."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks us to wait, given as a number, a time with units or a date."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def wait_in(said: str) -> float | None:
    """Seconds that a message names."""
    found = _ASKED.search(said[:MAX_WORDS])
    return None if found is None else min(_with_units(found[1]), LONGEST)


def wait_named(body: Any, depth: int = 4) -> float | None:
    """Seconds that a field of an error names, at whatever level of it."""
    if isinstance(body, dict):
        for name, unit in _FIELDS.items():
            found = _seconds(body.get(name), unit)
            if found is not None and found < _A_DATE:
                return min(found, LONGEST)
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    waits = (wait_named(each, depth - 1) for each in inner if depth)
    return next((wait for wait in waits if wait is not None), None)


def _seconds(value: Any, unit: float = 1.0) -> float | None:
    if isinstance(value, str):
        if re.fullmatch(_TIME, value.strip(), re.IGNORECASE):
            return _with_units(value)
        value = _number(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _NEVER:
        return None
    return max(0.0, value * unit)


def _with_units(text: str) -> float:
    """Of one that `_TIME` fits."""
    pieces = re.findall(r"(\d+(?:\.\d+)?)\s?([a-z]+)", text.lower())
    return round(sum(float(number) * _unit(word) for number, word in pieces), 3)


def _unit(word: str) -> float:
    return _UNITS["ms"] if word.startswith(("ms", "mil")) else _UNITS[word[0]]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None
