"""Text in pieces of which each may repeat everything before it. Pure.

Some servers send "He", "Hello", "Hello you" for "He", "llo", " you". Two pieces decide nothing
("ha", "haha"), so pieces that grow out of each other wait until it cannot be chance.
"""

from __future__ import annotations

ENOUGH = 8
"""So many characters do not come twice in a row by chance."""
_VARIED = 4
"""Different characters that a text has at least; less may be a drawn line."""
_MOST = 200
"""A longer piece is not held back."""


class Growth:
    """Feed it pieces, get what is new in them."""

    def __init__(self) -> None:
        self.plain = False
        """Whether every further piece is new text."""
        self._said = ""
        self._held: list[str] = []
        self._grows = False

    def feed(self, piece: str) -> str:
        if self.plain or not self._said:
            self._said = piece
            return piece
        if self._grows:
            return self._rest(piece)
        before = self._held[-1] if self._held else self._said
        self._held.append(piece)
        if not piece.startswith(before) or not piece.strip():
            return self._release()
        new = self._decide(len(self._held) > 1)
        return self._release() if self._held and len(piece) > _MOST else new

    def close(self) -> str:
        """What was held back."""
        new = self._decide(len(self._held) > 1 or len(self._said) >= ENOUGH) if self._held else ""
        return self._release() if self._held else new

    def _release(self) -> str:
        """They were pieces like any other."""
        held, self._held, self.plain = self._held, [], True
        return "".join(held)

    def _decide(self, repeated: bool) -> str:
        last = self._held[-1]
        if not repeated or len(set(last)) < _VARIED or last == self._said:
            return ""
        self._grows, self._held = True, []
        return self._rest(last)

    def _rest(self, piece: str) -> str:
        if not piece.startswith(self._said):
            return piece
        new = piece[len(self._said) :]
        self._said = piece
        return new
