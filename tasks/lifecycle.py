"""The life of a task: one table of allowed moves and one compare-and-swap.

A task is born queued, or running together with its run (`starting.Start`). From there on a status
changes nowhere else. `move()` belongs into a command of `tasks.writer`, beside the events that report
it; when it answers False somebody else was faster and nothing was changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from django.db import connection
from django.utils import timezone

from tasks import events
from tasks.models import Task
from tasks.statements import Sql, update

_S = Task.Status

MOVES: dict[Task.Status, frozenset[Task.Status]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED}),
    _S.RUNNING: frozenset({_S.RUNNING, _S.WAITING_APPROVAL, *Task.TERMINAL}),
    # running → running is a takeover: only for who names it, see `sources()`
    _S.WAITING_APPROVAL: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED, _S.BUDGET_EXCEEDED}),
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.BUDGET_EXCEEDED: frozenset(),
}
"""From → to."""


def sources(to: Task.Status) -> frozenset[Task.Status]:
    """Where a task may come from. A takeover is never meant by accident, so `to` itself is not in it."""
    return frozenset(frm for frm, allowed in MOVES.items() if to in allowed and frm != to)


def move(
    task_id: str | uuid.UUID,
    *,
    to: Task.Status,
    frm: Collection[Task.Status] | None = None,
    run: int | None = None,
    known: int | None = None,
    **changes: Any,
) -> bool:
    """Set the status, if it is one of `frm` (default: every allowed one), `run` owns the task, and
    `known` is the sequence of its newest event.

    `changes` are further fields. Moving to running also adds 1 to `Task.run`, the fence; any other
    status releases the lease; a terminal one sets `finished_at`. True: the move is ours. ValueError: the table forbids it.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("A status moves inside a command, together with the events that say so.")
    wanted = sources(to) if frm is None else frozenset(frm)
    forbidden = sorted(status for status in wanted if to not in MOVES[status])
    if forbidden:
        raise ValueError(f"A task never moves from {', '.join(forbidden)} to {to}.")
    fields = {**_consequences(to), **changes, "status": to}
    if not wanted:
        return False
    where = f"id = %s AND status IN ({', '.join(['%s'] * len(wanted))})"
    key = task_id if isinstance(task_id, uuid.UUID) else uuid.UUID(task_id)
    params = [key, *wanted]
    for column, value in (("run", run), ("last_sequence", known)):
        if value is not None:
            where += f" AND {column} = %s"
            params.append(value)
    return bool(update(Task, fields, where, *params))


def complete_together(wanted: Sequence[events.Wanted]) -> list[events.Appended]:
    """Inside a command: running → completed for several runs, each with the last events of its log,
    its counters and its `final_answer`, by as many statements as for one. Raises NotTogether."""
    fields = {"status": _S.COMPLETED, **_consequences(_S.COMPLETED)}
    whole = [msgspec.structs.replace(each, fields={**each.fields, **fields}) for each in wanted]
    return events.append_together(whole, _completing)


_completing = events.Heads(
    *events.COUNTERS,
    "final_answer",
    *("status", "lease_worker", "lease_expires_at", "finished_at"),
)


def _consequences(to: Task.Status) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if to == Task.Status.RUNNING:
        fields["run"] = Sql("run + 1")
    else:
        fields |= {"lease_worker": "", "lease_expires_at": None}
    if to in Task.TERMINAL:
        fields["finished_at"] = timezone.now()
    return fields
