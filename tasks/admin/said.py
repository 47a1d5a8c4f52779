"""What an entry of the log consists of, and what entries know of the events before them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from agent import events as ev
from agent.text import cut
from tasks.admin import diffs, words
from tasks.admin.diffs import Diff
from tasks.told import told_evidence
from tasks.words import later

MAX_FOLDED = 4000
"""Characters of a text that unfolds; the export has the whole."""

PERSON_TYPES = frozenset(
    {"task_created", "user_message", "approval_required", "approval_resolved", "approval_updated"}
)
"""What people did or are asked: shaded."""


@dataclass(frozen=True, kw_only=True)
class Fold:
    """Something that unfolds below an entry."""

    summary: str
    text: str = ""
    diff: Diff | None = None
    open: bool = False


@dataclass(frozen=True, kw_only=True)
class Said:
    """What an event says: `lead` `subject` `tail`, where the subject is set as code."""

    mark: str
    """Name of an icon."""
    tone: str = "plain"
    """wait, ok, fail, risk, run or plain"""
    lead: str
    subject: str = ""
    tail: str = ""
    sub: str = ""
    strong: bool = False
    routine: bool = False
    """Nothing to stop at: neighbours like it are folded together."""
    approval_id: str = ""
    folds: tuple[Fold, ...] = ()


@dataclass(kw_only=True)
class Context:
    """What the events before this one said. Fed in order."""

    calls: dict[str, ev.ToolCallRequested] = field(default_factory=dict)
    began: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    """Sequence and time of the `tool_call_started` of a call."""
    asked: dict[str, datetime] = field(default_factory=dict)
    asker: str = ""
    """Whose task it is."""

    def note(self, sequence: int, at: datetime, event: ev.StoredEvent) -> None:
        match event:
            case ev.ToolCallRequested():
                self.calls[event.tool_call_id] = event
            case ev.ToolCallStarted():
                self.began[event.tool_call_id] = (sequence, at)
            case ev.ApprovalRequired():
                self.asked[event.approval_id] = at
            case _:
                pass

    def call(self, tool_call_id: str) -> words.Call:
        asked = self.calls.get(tool_call_id)
        if asked is None:  # so far back that this page does not know it
            subject = words.say("call {id}", id=tool_call_id[:40])
            return words.Call(words.say("run"), words.say("ran"), subject)
        return words.call_of(asked.name, asked.arguments)

    def was_allowed(self, tool_call_id: str) -> bool:
        """Without asking anybody."""
        asked = self.calls.get(tool_call_id)
        return asked is not None and asked.decision == "allow"


_RISKS = {
    "low": later("Low risk"),
    "medium": later("Medium risk"),
    "high": later("High risk"),
}


def said_risk(risk: str) -> str:
    """Tools say one of three."""
    return str(_RISKS.get(risk, words.line(risk)))


# ── folds ─────────────────────────────────────────────────────────────────────────────────────


def text_fold(summary: str, text: str) -> tuple[Fold, ...]:
    return (Fold(summary=summary, text=bounded(words.visible(text))),) if text else ()


def bounded(text: str) -> str:
    return cut(text, MAX_FOLDED, words.say("\n[… cut here; the export has the whole …]"))


def change_fold(diff: str, summary: str, *, open_: bool) -> tuple[Fold, ...]:
    parsed = diffs.parse(told_evidence(diff))
    if parsed is None:
        return ()
    said = f"{summary}: {parsed.size}" if parsed.size else words.say("What would happen")
    return (Fold(summary=said, diff=parsed, open=open_),)


def arguments_fold(
    arguments: dict[str, Any] | None, raw: str | msgspec.UnsetType = msgspec.UNSET
) -> tuple[Fold, ...]:
    if isinstance(raw, str):
        return text_fold(words.say("What the model sent"), raw)
    if not arguments:
        return ()
    return (Fold(summary=words.say("Arguments"), text=bounded(words.pretty(arguments))),)
