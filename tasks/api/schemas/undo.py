"""Undoing a call: what it would do, and the confirmation."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from agent import undo
from agent.undo import Action, Fate, Standing
from tasks.api.schemas.common import Strict
from tasks.undoing import Call, Preview, State


class UndoIn(Strict):
    digest: str
    """Of the preview that you saw."""


class FileState(BaseModel):
    sha256: str
    size: int
    mode: str | None
    """Permissions in octal digits; null: not known, as of a file that the call made itself."""

    @classmethod
    def of(cls, state: undo.State | None) -> FileState | None:
        if state is None:
            return None
        mode = None if state.mode is None else f"{state.mode:03o}"
        return cls(sha256=state.sha256, size=state.size, mode=mode)


class UndoFile(BaseModel):
    path: str
    action: Action
    state: Standing
    """ready: it would be undone · done: it is as before · changed: somebody changed it since the
    call, so nothing is undone · lost: it cannot be undone, and `reason` says why"""
    reason: str
    before: FileState | None
    after: FileState | None
    diff: str
    """From what is there to what would be there; sizes and digests where it is no small text."""

    @classmethod
    def of(cls, fate: Fate, diff: str) -> UndoFile:
        return cls(
            path=fate.piece.path,
            action=fate.action,
            state=fate.standing,
            reason=fate.why,
            before=FileState.of(fate.piece.before),
            after=FileState.of(fate.piece.after),
            diff=diff,
        )


class UndoOut(BaseModel):
    tool_call_id: str
    name: str
    state: State
    message: str
    can_undo: bool
    """Whether you may: whoever may decide about such a call."""
    undone_by: str | None
    undone_at: str | None
    files: Sequence[UndoFile]
    complete: bool
    """False: the call may have changed more than was looked at."""
    digest: str
    """Of all this; goes back with the confirmation."""

    @classmethod
    def of(cls, call: Call, found: Preview, *, can_undo: bool) -> UndoOut:
        entry, plan = call.entry, found.plan
        fates = () if plan is None else plan.fates
        return cls(
            tool_call_id=call.tool_call_id,
            name=call.name,
            state=found.state,
            message=found.message,
            can_undo=can_undo,
            undone_by=entry.by if entry else None,
            undone_at=entry.at if entry and entry.done else None,
            files=[UndoFile.of(*each) for each in zip(fates, found.diffs, strict=True)],
            complete=plan is None or plan.record.complete,
            digest="" if plan is None else plan.digest,
        )
