"""Text that every store and every wire accepts.

PostgreSQL refuses NUL, UTF-8 refuses lone surrogates, and both reach us from models and files.
Whatever enters the system from outside passes `clean()` or `clean_json()` once, at its edge.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""Control characters, line ends that terminals do not show, and what reverses or hides text. The
joiners of Persian and of emoji stay."""
_CLOSING = re.compile(r"<(\s*)/(\s*untrusted)", re.IGNORECASE)
_ESCAPED = re.compile(r"<(\s*)\\/(\s*untrusted)", re.IGNORECASE)
_OPENING = re.compile(r'<untrusted source="([\w.:/-]{0,64})" id="([0-9a-f]{16})">\n', re.ASCII)
_MARKED = re.compile(r'<untrusted [^\n]*>\n(.*)\n</untrusted id="[0-9a-f]{16}">', re.DOTALL)
_ODD = re.compile(r"[^\w.:/-]")
MAX_DEPTH = 64
"""Deeper JSON than this is refused: no tool needs it and recursion has an end."""


def clean(text: str) -> str:
    """Pair split surrogates, replace lone ones and NUL by U+FFFD."""
    if not _UNSTORABLE.search(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNSTORABLE.sub("\ufffd", joined)


def clean_json(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The same for every string and key of a JSON value. Raises ValueError when nested too deep."""
    if isinstance(value, str):
        return clean(value)
    if depth == 0 and isinstance(value, dict | list):
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {clean(str(key)): clean_json(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item, depth - 1) for item in value]
    return value


def visible(text: str) -> str:
    """The text with hidden characters written out, as `<202E>`: evidence must read as it is. The
    page's `visible` (static/app/text.js) is the same."""
    return _HIDDEN.sub(lambda found: f"<{ord(found[0]):02X}>", text.replace("\r\n", "\n"))


def cut(text: str, limit: int, marker: str = "…") -> str:
    """`text`, or its first `limit` characters with a marker that says that it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - len(marker))] + marker


def size_of_text(text: str) -> int:
    """Bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def mark_untrusted(text: str, source: str) -> str:
    """Wrap text that came from outside, so that the model can tell data from instructions."""
    return marked("untrusted", _CLOSING.sub(r"<\1\\/\2", text), source)


def marked(tag: str, text: str, source: str) -> str:
    """Text between two marks with an id that is computed from it: no text can contain its own id,
    so it cannot pretend to end before it does. The same text has the same marks, for caches."""
    id_ = hashlib.sha256(f"{source}\n{text}".encode("utf-8", "replace")).hexdigest()[:16]
    return f'<{tag} source="{_ODD.sub("_", source)[:64]}" id="{id_}">\n{text}\n</{tag} id="{id_}">'


class Part(NamedTuple):
    """Of a text with others in it."""

    text: str
    source: str | None
    """Whose text it is, where it was marked."""


def parts_of(text: str) -> list[Part]:
    """A text in which others were wrapped by `mark_untrusted`, taken apart; what is empty is left
    out. An opening mark that nothing closes is text."""
    parts: list[Part] = []
    at = looked = 0
    while found := _OPENING.search(text, looked):
        looked = found.end()
        closing = f'\n</untrusted id="{found[2]}">'
        end = text.find(closing, looked)
        if end < 0:
            continue
        parts.append(Part(text[at : found.start()], None))
        parts.append(Part(_ESCAPED.sub(r"<\1/\2", text[looked:end]), found[1]))
        at = looked = end + len(closing)
    parts.append(Part(text[at:], None))
    return [part for part in parts if part.text or part.source is not None]


def unmark(text: str) -> str:
    """What `mark_untrusted` wrapped."""
    found = _MARKED.fullmatch(text)
    return _ESCAPED.sub(r"<\1/\2", found[1]) if found else text
