"""Sessions, and which of them run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from tasks.api.schemas.common import Mode, Strict, stamp
from tasks.models import Session, Task
from tasks.standing import Standing


class SessionIn(Strict):
    workspace_id: str | None = None
    title: str = Field("", max_length=200)


class SessionPatch(Strict):
    title: str | None = Field(None, max_length=200)
    archived: bool | None = None
    model_profile_id: str | None = None
    """Which model its tasks ask; null: the default one."""
    mode: Mode | Literal[""] | None = None
    """Tightens the mode of its tasks; empty: as workspace and server say."""


class HandOverIn(Strict):
    username: str


class ForkIn(Strict):
    task_id: str
    sequence: int = Field(ge=1, le=2**63 - 1)


class ForkedFrom(BaseModel):
    task_id: str
    sequence: int | None


class SessionTask(BaseModel):
    """The task that a session's state is about: one that is not finished, else the newest."""

    id: str
    status: str
    trigger: str
    steps: int


class SessionOut(BaseModel):
    id: str
    title: str
    workspace_id: str
    workspace_name: str
    owner: str
    state: str
    """needs_you, running, queued, done, failed, stopped, limit, or empty: no task yet"""
    waiting: int
    """Decisions that it waits for."""
    task: SessionTask | None
    archived: bool
    model_profile_id: str | None
    mode: str
    last_position: int
    forked_from: ForkedFrom | None
    created_at: str | None
    updated_at: str | None
    stream_url: str

    @classmethod
    def of(cls, session: Session, standing: Standing) -> SessionOut:
        forked = None
        if session.forked_from_id:
            forked = ForkedFrom(
                task_id=str(session.forked_from_id), sequence=session.forked_at_sequence
            )
        return cls(
            id=str(session.id),
            title=session.title,
            workspace_id=str(session.workspace_id),
            workspace_name=session.workspace.name,
            owner=session.owner.get_username(),
            state=standing.state,
            waiting=standing.waiting,
            task=_session_task(standing.task),
            archived=session.archived,
            model_profile_id=str(session.model_profile_id) if session.model_profile_id else None,
            mode=session.mode,
            last_position=session.last_position,
            forked_from=forked,
            created_at=stamp(session.created_at),
            updated_at=stamp(session.updated_at),
            stream_url=f"/api/sessions/{session.id}/stream",
        )


def _session_task(task: Task | None) -> SessionTask | None:
    if task is None:
        return None
    return SessionTask(id=str(task.pk), status=task.status, trigger=task.trigger, steps=task.steps)


class SessionList(BaseModel):
    items: Sequence[SessionOut]
    next: str | None


class RunningOut(BaseModel):
    session_id: str
    task_id: str
    status: str


class RunningList(BaseModel):
    items: Sequence[RunningOut]
    next: str | None = None
