"""One block's text on its way out: cleaned, without our key, in deltas of at most 512 characters. Pure.

What may mean something else with the next read is held back, nothing else: the first half of a
surrogate pair, the beginning of the key.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.events import MAX_DELTA_CHARS, Delta
from agent.scrub import Scrubber
from agent.text import clean


class Outgoing:
    """The text of one block on its way out."""

    def __init__(self, delta: Callable[..., Delta], scrub: Scrubber) -> None:
        """`delta` makes one of its `offset` and its text, `delta`; it must not hold who holds us."""
        self._delta = delta
        self._scrub = scrub or None
        self._pending: list[str] = []
        self.add = self._pending.append
        self._sent: list[str] = []
        self._offset = 0

    @property
    def text(self) -> str:
        return "".join(self._sent)

    @property
    def whole(self) -> str:
        """With what is still held back."""
        return "".join([*self._sent, *self._pending])

    def drain(self, *, final: bool = False) -> list[Delta]:
        text = "".join(self._pending)
        self._pending.clear()
        if not text:
            return []
        if self._scrub is not None:
            text = self._scrub.exact(text)
        if not final and (kept := self._undecided(text)):
            self._pending.append(text[-kept:])
            text = text[:-kept]
        text = clean(text)
        deltas: list[Delta] = []
        for start in range(0, len(text), MAX_DELTA_CHARS):
            piece = text[start : start + MAX_DELTA_CHARS]
            self._sent.append(piece)
            deltas.append(self._delta(offset=self._offset, delta=piece))
            self._offset += len(piece)
        return deltas

    def _undecided(self, text: str) -> int:
        """How much of the end may mean something else with the next read."""
        if "\ud800" <= text[-1] <= "\udbff":
            return 1
        return 0 if self._scrub is None else self._scrub.undecided(text)
