"""Tasks and their events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field

from tasks.api.schemas.common import Mode, Strict, stamp
from tasks.commands import Created
from tasks.models import Task

UNUSED = {
    **dict.fromkeys(("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens"), 0),
    "estimated": False,
}
"""The use of a task that no model has answered yet."""
WhenBusy = Literal["reject", "queue", "steer", "interrupt"]


class TaskIn(Strict):
    goal: str
    session_id: str | None = None
    workspace_id: str | None = None
    follow_up_of: str | None = None
    when_busy: WhenBusy = "reject"
    mode: Mode | None = None
    attachments: list[str] = Field(default_factory=list, max_length=50)
    """Paths of files in the workspace that the goal is about."""
    model: str | None = None
    """Id or name of a model profile; default: the session's."""


class CreatedOut(BaseModel):
    """A task that runs in the background: new, or the one that was steered."""

    id: str
    session_id: str
    status: str
    sequence: int
    """Of the event that this request stored."""
    position: int
    """The same on the session's stream."""
    stream_url: str

    @classmethod
    def of(cls, created: Created) -> CreatedOut:
        return cls(
            id=str(created.task_id),
            session_id=str(created.session_id),
            status=created.status,
            sequence=created.sequence,
            position=created.position,
            stream_url=created.stream_url,
        )


class LimitsIn(Strict):
    steps: int | None = Field(None, ge=1, le=10_000)
    seconds: float | None = Field(None, gt=0, le=7 * 24 * 3600)
    tokens: int | None = Field(None, ge=1, le=10**12)
    cost: float | None = Field(None, gt=0, le=10**6)


class RetryIn(Strict):
    model: str | None = None
    limits: LimitsIn | None = None


class MessageIn(Strict):
    text: str
    delivery: Literal["queue", "steer"]


class TaskOut(BaseModel):
    id: str
    session_id: str
    goal: str
    status: str
    trigger: str
    mode: str
    model_profile_id: str | None
    """Its own; null: its session's."""
    follow_up_of: str | None
    run: int
    queue_position: int | None
    """While it is queued: its place in the server's line, the next one at 1."""
    last_sequence: int
    cancel_requested_at: str | None
    final_answer: str
    error: Any
    steps: int
    usage: dict[str, Any]
    """Always with every counter."""
    cost: float | None
    worker: str | None
    """host:pid of the process that runs it, while one does."""
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    stream_url: str

    @classmethod
    def of(cls, task: Task, place: int | None = None) -> TaskOut:
        return cls(
            id=str(task.id),
            session_id=str(task.session_id),
            goal=task.goal,
            status=task.status,
            trigger=task.trigger,
            mode=task.mode,
            model_profile_id=str(task.model_profile_id) if task.model_profile_id else None,
            follow_up_of=str(task.follow_up_of_id) if task.follow_up_of_id else None,
            run=task.run,
            queue_position=place,
            last_sequence=task.last_sequence,
            cancel_requested_at=stamp(task.cancel_requested_at),
            final_answer=task.final_answer,
            error=task.error,
            steps=task.steps,
            usage=UNUSED | task.usage,
            cost=None if task.cost is None else float(task.cost),
            worker=task.lease_worker or None,
            created_at=stamp(task.created_at),
            started_at=stamp(task.started_at),
            finished_at=stamp(task.finished_at),
            stream_url=stream_url(task.id),
        )


def stream_url(task_id: object) -> str:
    return f"/api/tasks/{task_id}/stream"


class TaskList(BaseModel):
    items: Sequence[TaskOut]
    next: str | None


class EventOut(BaseModel):
    """A stored event; docs/events.md has the payload of each type."""

    sequence: int
    position: int
    type: str
    task_id: str
    created_at: str
    payload: dict[str, Any]


class EventList(BaseModel):
    items: Sequence[EventOut]
    next: int | None
