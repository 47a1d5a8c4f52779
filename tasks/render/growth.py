"""A text that grows: what of it is settled, and the pieces that it becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from markdown_it.token import Token

from tasks.render.markdown import markdown_it
from tasks.render.whole import plain, safely

MAX_OPEN = 32 * 1024
"""Characters of a growing text behind its last settled place."""

_LINE_END = re.compile(r"\r\n?|\n")


def settled(text: str) -> int:
    """How many characters at the start of `text` nothing that may follow can change the look of.

    They end before the last block that the complete lines make: that one may still grow.
    """
    starts = [0, *(found.end() for found in _LINE_END.finditer(text))]
    if text.endswith("\r"):  # perhaps half of a line end
        starts.pop()
    tokens: list[Token] = []
    markdown = markdown_it()
    complete = _LINE_END.sub("\n", text[: starts[-1]]).replace("\0", "\ufffd")
    markdown.block.parse(complete, markdown, {}, tokens)
    for token in reversed(tokens):
        if token.level == 0 and token.nesting >= 0 and token.map:
            return starts[token.map[0]]
    return 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a growing text has become since the last one."""

    taken: int
    """Characters that are settled now."""
    piece: str
    """Their HTML, for good."""
    tail: str
    """The HTML of what is behind them, as it looks now."""


@dataclass(kw_only=True)
class Growth:
    """What the pieces of one growing text know of each other. One thread at a time."""

    links: dict[str, Any] = field(default_factory=dict)
    too_long: bool = False
    """A block of it had no end in sight: from there on it is shown as it is written."""

    def step(self, text: str) -> Step:
        """`text` is everything behind what was settled before."""
        if self.too_long or len(text) > MAX_OPEN:
            return self._unrendered(text)
        taken = settled(text)
        piece = safely(text[:taken], {"references": self.links}) if taken else ""
        # A definition that is being written must not be remembered: the first one counts.
        tail = safely(text[taken:], {"references": dict(self.links)})
        return Step(taken=taken, piece=piece, tail=tail)

    def _unrendered(self, text: str) -> Step:
        self.too_long = True
        taken = text.rfind("\n") + 1
        taken = taken or len(text) - len(text) % MAX_OPEN
        return Step(
            taken=taken,
            piece=plain(text[:taken]) if taken else "",
            tail=plain(text[taken:]) if taken < len(text) else "",
        )
