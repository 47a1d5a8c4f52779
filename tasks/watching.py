"""What the runner's watcher asks of the database, and how leases are held.

The rows are the truth: which tasks may run, what a person wants stopped, and what others stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import DateTimeField, Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks.commands import lease
from tasks.models import Approval, Session, Task
from tasks.statements import Prepared, Slot, UpdateEach, fetch, key_of


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look of the watcher at the database."""

    runnable: list[UUID]
    cancelled: list[UUID]
    tasks: dict[UUID, int]
    """Last sequences of the followed tasks."""
    sessions: dict[UUID, int]
    """Last positions of the followed sessions."""
    queued: bool
    """Whether any task waits for a place or for its turn."""


def runnable(now: datetime | Slot | None = None) -> Q:
    """Tasks that may be begun, as far as one query can tell; `starting.may_begin` has the last word."""
    now = now or timezone.now()
    free = Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)
    earlier = Task.objects.filter(
        session=OuterRef("session"),
        status__in=Task.OPEN,
        first_position__lt=OuterRef("first_position"),
    )
    pending = Approval.objects.filter(task=OuterRef("pk"), status=Approval.Status.PENDING)
    return free & (
        (Q(status=Task.Status.QUEUED) & ~Exists(earlier))
        | (Q(status=Task.Status.WAITING_APPROVAL) & ~Exists(pending))
        | Q(status=Task.Status.RUNNING)
    )


def _ready_in(status: Task.Status) -> QuerySet[Task, Any]:
    tasks = Task.objects.filter(runnable(Slot(0, DateTimeField())), status=status)
    return tasks.order_by("created_at", "pk").values_list("created_at", "pk")


_ready = [Prepared(partial(_ready_in, status)) for status in sorted(Task.OPEN)]
_CANCELLED = f"""
    SELECT id FROM {Task._meta.db_table}
    WHERE status = 'running' AND cancel_requested_at IS NOT NULL"""  # noqa: S608
_QUEUED = f"SELECT 1 FROM {Task._meta.db_table} WHERE status = 'queued' LIMIT 1"  # noqa: S608


def look(
    room: int,
    running: list[UUID],
    tasks: list[str],
    sessions: list[str],
    *,
    only: UUID | None = None,
) -> Seen:
    asked = [key_of(key) for (key,) in fetch(_CANCELLED)] if running else []
    return Seen(
        runnable=_oldest(room, set(running), only) if room > 0 else [],
        cancelled=[task_id for task_id in asked if task_id in running],
        tasks=_lasts(Task, "last_sequence", tasks),
        sessions=_lasts(Session, "last_position", sessions),
        queued=bool(fetch(_QUEUED)),
    )


def _oldest(room: int, running: set[UUID], only: UUID | None) -> list[UUID]:
    """One status after the other, each in the order of its index: a long queue is not sorted."""
    if only is not None:
        ours = Task.objects.filter(runnable(), pk=only, status__in=Task.OPEN).exists()
        return [only] if ours and only not in running else []
    now = timezone.now()
    found = sorted(row for ready in _ready for row in ready(now, room + len(running)))
    keys = (key_of(key) for _, key in found)
    return [key for key in keys if key not in running][:room]


def _lasts(model: type[Model], name: str, ids: list[str]) -> dict[UUID, int]:
    if not ids:
        return {}
    places = ", ".join(["%s"] * len(ids))
    sql = f"SELECT id, {name} FROM {model._meta.db_table} WHERE id IN ({places})"  # noqa: S608
    return {key_of(key): last for key, last in fetch(sql, *map(UUID, ids))}


_prolong = UpdateEach(
    Task,
    {"key": "id", "fence": "run", "holder": "lease_worker", "until": "lease_expires_at"},
    "lease_expires_at = until",
    "id = key AND run = fence AND lease_worker = holder AND status = 'running'",
)


def renew(worker: str, held: dict[UUID, int]) -> set[UUID]:
    """Command: the tasks of `held`, each with its run, that still are ours, their lease prolonged."""
    new = lease(worker)
    mine = [(key, run, worker, new["lease_expires_at"]) for key, run in held.items()]
    if _prolong(mine) == len(mine):
        return set(held)
    ours = Task.objects.filter(pk__in=held, lease_worker=worker, status=Task.Status.RUNNING)
    return {key for key, run in ours.values_list("pk", "run") if held[key] == run}


def disown(worker: str) -> None:
    """Command: what a dead server held is free at once, without waiting for its leases."""
    Task.objects.filter(lease_worker=worker, status__in=Task.OPEN).update(lease_expires_at=None)
