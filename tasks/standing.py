"""How each of some sessions stands, in one word, for lists: does it need somebody, does it run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count, OuterRef, Subquery

from tasks.models import Approval, Session, Task

ENDED = {
    Task.Status.COMPLETED: "done",
    Task.Status.FAILED: "failed",
    Task.Status.CANCELLED: "stopped",
    Task.Status.BUDGET_EXCEEDED: "limit",
}
OPEN = {
    Task.Status.WAITING_APPROVAL: "running",  # answered already: its next run is about to begin
    Task.Status.RUNNING: "running",
    Task.Status.QUEUED: "queued",
}
"""In the order in which they count."""


MOST_IN_LINE = 10_000
"""Who stands behind that many is not told how many they are."""


@dataclass(frozen=True, kw_only=True)
class Standing:
    state: str
    """needs_you, running, queued, done, failed, stopped, limit, or empty."""
    waiting: int
    """Pending decisions."""
    task: Task | None
    """The one that the state is about."""


def of_sessions(sessions: Sequence[Session]) -> dict[UUID, Standing]:
    """Three statements, however many sessions."""
    ids = [session.pk for session in sessions]
    waiting = _waiting(ids)
    tasks: dict[UUID, list[Task]] = {session_id: [] for session_id in ids}
    for task in _tasks(ids):
        tasks[task.session_id].append(task)
    return {
        session_id: _standing(tasks[session_id], waiting.get(session_id, 0)) for session_id in ids
    }


def of_session(session: Session) -> Standing:
    return of_sessions([session])[session.pk]


def places(tasks: Sequence[Task]) -> dict[UUID, int]:
    """Where those of the tasks that are queued stand in the server's line, the next one at 1."""
    last = max(
        (task.created_at for task in tasks if task.status == Task.Status.QUEUED), default=None
    )
    if last is None:
        return {}
    line = Task.objects.filter(status=Task.Status.QUEUED, created_at__lte=last)
    ids = line.order_by("created_at", "pk").values_list("pk", flat=True)[:MOST_IN_LINE]
    return {task_id: place for place, task_id in enumerate(ids, start=1)}


def _waiting(ids: list[UUID]) -> dict[UUID, int]:
    pending = Approval.objects.filter(status=Approval.Status.PENDING, task__session__in=ids)
    counted = pending.order_by().values_list("task__session").annotate(Count("pk"))
    return dict(counted)


def _tasks(ids: list[UUID]) -> list[Task]:
    """The open ones, and the newest of each session, in their order."""
    newest = (
        Task.objects.filter(session=OuterRef("pk"))
        .order_by("-first_position", "-created_at")
        .values("pk")[:1]
    )
    last = Session.objects.filter(pk__in=ids).values_list(Subquery(newest), flat=True)
    shown = Task.objects.only("session_id", "status", "trigger", "steps")
    found = {task.pk: task for task in shown.filter(session__in=ids, status__in=Task.OPEN)}
    found |= {task.pk: task for task in shown.filter(pk__in=[key for key in last if key])}
    return list(found.values())


def _standing(tasks: list[Task], waiting: int) -> Standing:
    if not tasks:
        return Standing(state="empty", waiting=waiting, task=None)
    for status, state in OPEN.items():
        for task in tasks:
            if task.status == status:
                said = "needs_you" if waiting else state
                return Standing(state=said, waiting=waiting, task=task)
    return Standing(state=ENDED[Task.Status(tasks[-1].status)], waiting=waiting, task=tasks[-1])
