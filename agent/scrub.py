"""Keys out of everything that people, logs or models may read. Pure."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from agent.text import MAX_DEPTH

_MASK = "***"
_SHORTEST = 3
_SHORTEST_IN_REPLIES = 16
"""A shorter key may be an ordinary word, and what a model writes ends up in people's files."""
_KEY_LIKE = re.compile(r"\b(sk|pk|rk|gsk|xai|hf|key)[-_][\w.*…\-]{4,}|\bAIza[\w*\-]{8,}")
_BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=*…\-]{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"([?&](?:api[_-]?key|key|token|access_token)=)[^&\s\"']+", re.IGNORECASE)


class Scrubber:
    """Knows one key; replaces it, and what looks like a key or a part of one, by `***`."""

    def __init__(self, api_key: str = "") -> None:
        in_json = api_key.replace("\\", "\\\\").replace('"', '\\"')
        forms = {api_key, quote(api_key, safe=""), in_json, in_json.replace("/", "\\/")}
        longest_first = sorted(forms, key=len, reverse=True)
        self._forms = longest_first if len(api_key) >= _SHORTEST else []
        self._in_replies = longest_first if len(api_key) >= _SHORTEST_IN_REPLIES else []

        self._beginnings = _beginnings(self._in_replies)

    def __bool__(self) -> bool:
        """Whether there is anything to look for in what a model writes."""
        return bool(self._in_replies)

    def exact(self, text: str) -> str:
        """Only the key itself: for what a model wrote."""
        for form in self._in_replies:
            if form in text:
                text = text.replace(form, _MASK)
        return text

    def known(self, text: str) -> str:
        """Only the key itself, however short: for what a program says that was given it."""
        for form in self._forms:
            text = text.replace(form, _MASK)
        return text

    def exact_in(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """The same for every string and key of a JSON value. Raises ValueError when nested too
        deep."""
        if isinstance(value, str):
            return self.exact(value)
        if depth == 0 and isinstance(value, dict | list):
            raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return {self.exact(key): self.exact_in(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.exact_in(item, depth - 1) for item in value]
        return value

    def undecided(self, text: str) -> int:
        """How many characters at the end of `text` could become the key with what follows."""
        for size, form in self._beginnings.get(text[-1:], ()):
            if size <= len(text) and text.endswith(form[:size]):
                return size
        return 0

    def __call__(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, _MASK)
        text = _USERINFO.sub("", text)
        text = _QUERY.sub(rf"\1{_MASK}", text)
        text = _BEARER.sub(rf"\1 {_MASK}", text)
        return _KEY_LIKE.sub(_MASK, text)


def _beginnings(forms: list[str]) -> dict[str, list[tuple[int, str]]]:
    """Last character -> what begins a form and ends so, as (size, form), the longest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    sizes = [(size, form) for form in forms for size in range(1, len(form))]
    for size, form in sorted(sizes, reverse=True):
        found.setdefault(form[size - 1], []).append((size, form))
    return found
