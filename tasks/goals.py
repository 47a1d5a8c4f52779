"""Goals that bring somebody else's text along, and how people read them.

In the prompt, the log and the API such a text stands between marks, which tell a model that it is
data. People see it without them, in a box of its own with a label (the page: static/app/goal.js).
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.text import mark_untrusted, parts_of
from tasks.words import say

WEBHOOK, APPLICATION = "webhook", "application"
"""Whose text it is."""
LEADS = {WEBHOOK: "What was delivered:", APPLICATION: "Context from the application:"}
"""The line before the marks."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A goal is one or more of these."""

    text: str
    label: str = ""
    """What it is, where it is somebody else's text; empty: who asked said it."""


def with_data(goal: str, data: str, source: str) -> str:
    """The goal, and behind it what came along with it."""
    return f"{goal}\n\n{LEADS[source]}\n{mark_untrusted(data, source)}"


def pieces(goal: str) -> list[Piece]:
    """In their order, without marks."""
    found: list[Piece] = []
    parts = parts_of(goal)
    for place, (text, source) in enumerate(parts):
        if source is not None:
            found.append(Piece(text=text, label=_label(source)))
            continue
        following = parts[place + 1].source if place + 1 < len(parts) else None
        own = text.strip("\n").removesuffix(LEADS.get(following or "", "")).rstrip("\n")
        if own:
            found.append(Piece(text=own))
    return found


def plain(goal: str) -> str:
    """All of it as one text, for a line or a mail."""
    said = (
        f"{piece.label}:\n{piece.text}" if piece.label else piece.text for piece in pieces(goal)
    )
    return "\n\n".join(said)


def _label(source: str) -> str:
    match source:
        case "webhook":
            return say("What was delivered")
        case "application":
            return say("Context from the application")
        case _:
            return say("Text from elsewhere")
