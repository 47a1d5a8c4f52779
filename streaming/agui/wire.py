"""The blocks of a reply as AG-UI's events, one open at a time, in whatever order they grow.

Clients in several languages take nothing but its own pieces between the start of a message or a
call and its end, though the protocol allows more.

1. A text, or reasoning, ends where another block begins. What comes of it later is another message,
   `ID~2`, `ID~3` and so on.
2. A call cannot go on under another id, so nothing comes between until its stored event ends it.
   What others say meanwhile comes behind it, as the log has it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from streaming.agui.blocks import CALL, Kind, Out, Payload


@dataclass
class _Live:
    """A block that is not stored yet, as far as it went out."""

    kind: Kind
    block_id: str
    sent: int = 0
    """Characters."""
    names: list[str] = field(default_factory=list)
    """Its ids on the wire, the newest last."""

    def named_anew(self) -> str:
        number = len(self.names) + 1
        self.names.append(self.block_id if number == 1 else f"{self.block_id}~{number}")
        return self.names[-1]


class Wire:
    """What of the blocks is out, and which one is open."""

    def __init__(self, void: Callable[[Kind, str], Iterator[Out]]) -> None:
        """`void` says of an id that what was seen of it never happened."""
        self._void = void
        self._live: dict[str, _Live] = {}
        self._open: _Live | None = None
        self._unnamed: dict[str, str] = {}
        """Calls of which some text came before the name."""
        self._later: list[Callable[[], Iterator[Out]]] = []
        """What waits for the end of a call."""

    @property
    def _calling(self) -> bool:
        return self._open is not None and self._open.kind is CALL

    def grown(self, kind: Kind, payload: Payload) -> Iterator[Out]:
        """A piece of a block that is not stored yet."""
        block_id, offset = payload["block_id"], payload.get("offset", 0)
        text = payload.get("delta", payload.get("text", ""))
        live = self._live.get(block_id)
        unnamed = self._unnamed.get(block_id, "")
        if offset != (len(unnamed) if live is None else live.sent):
            return  # it had to wait before, and comes from the log
        if live is None or live is not self._open:
            if self._calling:
                return
            if kind is CALL and not payload["name"]:
                self._unnamed[block_id] = unnamed + text
                return
            text = self._unnamed.pop(block_id, "") + text
            live = yield from self._enter(kind, payload)
        if text:
            live.sent += len(text)
            yield kind.grow(live.names[-1], text)

    def completed(self, kind: Kind, payload: Payload, text: str) -> Iterator[Out]:
        """The stored event of a block: its end, its rest, or all of it."""
        block_id = payload["block_id"]
        self._unnamed.pop(block_id, None)
        live = self._live.get(block_id)
        if self._calling and live is not self._open:
            self._later.append(partial(self.completed, kind, payload, text))
            return
        rest = text if live is None else "" if kind is CALL else text[live.sent :]
        if live is None or (rest and live is not self._open):
            live = yield from self._enter(kind, payload)
        if rest:
            yield kind.grow(live.names[-1], rest)
        if live is self._open:
            yield from self._leave()
        del self._live[block_id]
        yield from self._waited()

    def aside(self, events: Iterable[Out]) -> Iterator[Out]:
        """What is no part of the reply."""
        if self._calling:
            self._later.append(partial(self.aside, events))
            return
        yield from self._leave()
        yield from events

    def withdraw(self) -> Iterator[Out]:
        """What is not stored by now never happened; nothing stays open."""
        self._unnamed.clear()
        broken = self._open if self._calling else None
        yield from self._leave()
        if broken is not None:
            yield from self._voided(self._live.pop(broken.block_id))
        yield from self._waited()
        for live in self._live.values():
            yield from self._voided(live)
        self._live.clear()

    def _voided(self, live: _Live) -> Iterator[Out]:
        for name in live.names:
            yield from self._void(live.kind, name)

    def _enter(self, kind: Kind, payload: Payload) -> Generator[Out, None, _Live]:
        """Returns the block, which is open then."""
        yield from self._leave()
        block_id = payload["block_id"]
        live = self._live.setdefault(block_id, _Live(kind, block_id))
        self._open = live
        yield from kind.begin(live.named_anew(), payload)
        return live

    def _leave(self) -> Iterator[Out]:
        if self._open is not None:
            left, self._open = self._open, None
            yield from left.kind.end(left.names[-1])

    def _waited(self) -> Iterator[Out]:
        while self._later and not self._calling:
            yield from self._later.pop(0)()
