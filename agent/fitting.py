"""What a tool gave, cut to what fits: storable text and plain JSON, both bounded."""

from __future__ import annotations

import json
from typing import Any

from agent.text import clean, clean_json

MAX_CONTENT = 32 * 1024
"""Characters of a result that the model reads."""
MAX_DETAILS = 32 * 1024
"""Characters of a result's details as JSON."""


def bound(text: str, limit: int = MAX_CONTENT) -> str:
    """Storable text of at most `limit` characters: head and tail, and what to do about the rest."""
    text = clean(text)
    if len(text) <= limit:
        return text
    note = (
        f"\n\n[… cut: {len(text):,} characters in all, the middle is left out. Ask for less at "
        "once: a range of lines, a narrower path, a more exact search. …]\n\n"
    )
    tail = (limit - len(note)) // 4
    return text[: limit - len(note) - tail] + note + text[-tail:]


def bound_details(details: dict[str, Any]) -> dict[str, Any]:
    """Plain JSON of bounded size; of too much, the small entries stay."""
    if _surely_fitting(details):
        return dict(details)
    try:
        text = json.dumps(details, default=str, allow_nan=False)
        plain: dict[str, Any] = clean_json(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {"problem": "the details of this result are not JSON and were dropped"}
    if len(text) <= MAX_DETAILS:
        return plain
    kept: dict[str, Any] = {"truncated": True, "size": len(text)}
    room = MAX_DETAILS // 2
    for key, value in plain.items():
        size = len(json.dumps(value)) + len(key)
        if size <= min(room, MAX_DETAILS // 16):
            kept[key] = value
            room -= size
    return kept


def _surely_fitting(details: dict[str, Any]) -> bool:
    """A quick yes for a few numbers and short texts, as nearly all details are."""
    texts = [*details, *[value for value in details.values() if type(value) is str]]
    if not (_PLAIN.issuperset(map(type, details.values())) and set(map(type, details)) <= {str}):
        return False
    text = "".join(texts)
    return 6 * len(text) + 40 * len(details) <= MAX_DETAILS and clean(text) == text


_PLAIN = frozenset({str, int, bool, type(None)})
"""Floats are not in it: some are no JSON."""
