"""What somebody else's data is about, in a few words: what tells two deliveries of one webhook apart.

The words are the sender's: they are quoted and shown to people, and never a title of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent.text import clean, cut, visible

SUBJECTS = (
    *("title", "subject", "summary", "headline", "message", "text", "name"),
    *("number", "build", "id"),
)
"""Where programs say what it is about, the most telling first."""
HAPPENED = ("action", "event", "type", "status", "state")
"""Where they say what became of it, beside everything else."""
MAX_CHARS = 80
MAX_LOOKED_AT = 2_000
"""Values of a document that are looked at."""


def gist(data: str) -> str:
    """One line, at most `MAX_CHARS`; empty where nothing tells."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return _line(data)
    if not isinstance(document, dict | list):
        return _line(str(document)) if _tells(document) else ""
    happened = _first(HAPPENED, _top(document))
    return _line(": ".join(filter(None, (happened, _first(SUBJECTS, _leaves(document))))))


def _first(keys: tuple[str, ...], found: Iterator[tuple[str, str]]) -> str:
    """What the best of the keys says; of the same key what stands less deep."""
    said: dict[str, str] = {}
    for key, text in found:
        said.setdefault(key, text)
    return next((said[key] for key in keys if key in said), "")


def _top(document: Any) -> Iterator[tuple[str, str]]:
    if isinstance(document, dict):
        yield from ((key, str(value)) for key, value in document.items() if _tells(value))


def _leaves(document: Any) -> Iterator[tuple[str, str]]:
    """Keys with their texts, level by level."""
    level, looked_at = [document], 0
    while level and looked_at < MAX_LOOKED_AT:
        looked_at += len(level)
        for value in level:
            yield from _top(value)
        level = [inner for value in level for inner in _inside(value)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [inner for inner in value.values() if isinstance(inner, dict | list)]
    return [inner for inner in value if isinstance(inner, dict | list)]


def _tells(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, str) and bool(value.strip()))


def _line(text: str) -> str:
    # What was written as an escape within JSON was no character when the body was cleaned.
    lines = (" ".join(line.split()) for line in visible(clean(text)).splitlines())
    return cut(next(filter(None, lines), ""), MAX_CHARS)
