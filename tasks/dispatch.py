"""Who runs a task next. Embedded: the server's own runner, which finds the row. Scale-out: a job.

In scale-out a Procrastinate job is deferred in the transaction that makes a task runnable: there is
never a runnable task without a job, nor a job for a task that was rolled back. Procrastinate hands
each job to one worker, lets one job of a session run at a time, and knows which workers died.

All functions belong into a command and do nothing in embedded mode, which never imports
Procrastinate. One job of a task waits at a time: a second one is refused by the queue's own index.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from tasks.conf import conf
from tasks.models import Task

QUEUE = "runs"
RUN_TASK = "run_task"
"""The job's name: part of the rows in the queue, so it never changes."""

_IS_WAITING = "SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = %s AND status = 'todo'"
_RUNNING = """
    SELECT id FROM procrastinate_jobs
    WHERE lock = %s AND queueing_lock = %s AND status = 'doing'"""


def queueing_lock(task_id: UUID) -> str:
    """One job of a task waits at a time."""
    return f"task:{task_id}"


def session_lock(task_id: UUID) -> str:
    """One job of a session runs at a time."""
    session_id = Task.objects.values_list("session_id", flat=True).get(pk=task_id)
    return f"session:{session_id}"


def offer(task_id: UUID, attempt: int = 0) -> None:
    """Inside a command: this task can be run now. `attempt` counts the jobs that died with it."""
    if not conf().scale_out:
        return
    lock = queueing_lock(task_id)
    with connection.cursor() as cursor:
        cursor.execute(_IS_WAITING, [lock])
        if cursor.fetchone() is not None:
            return
    from procrastinate.exceptions import AlreadyEnqueued  # as in `_app`

    job = _app().configure_task(
        RUN_TASK, queue=QUEUE, lock=session_lock(task_id), queueing_lock=lock
    )
    with suppress(AlreadyEnqueued), transaction.atomic():  # a moment ago, by another process
        job.defer(task_id=str(task_id), attempt=attempt)


def offer_answered(task_id: UUID) -> None:
    """Inside a command: nothing is asked any more. An answer that is repeated may find it running,
    or ended."""
    if not conf().scale_out:
        return
    if Task.objects.filter(pk=task_id, status=Task.Status.WAITING_APPROVAL).exists():
        offer(task_id)


def offer_next(session_id: UUID) -> None:
    """Inside a command that ended a task or made one: the session's first open task, if it waits
    for its turn and nobody else has taken it upon himself. Its row is not locked: this comes after
    the session's, and rows of tasks come first."""
    if not conf().scale_out:
        return
    tasks = Task.objects.filter(session_id=session_id, status__in=Task.OPEN)
    following = tasks.order_by("first_position").first()
    if following is None or following.status != Task.Status.QUEUED or following.lease_worker:
        return
    offer(following.pk)


def abort(task_id: UUID) -> None:
    """Inside a command: wake the worker that runs it; the row says what is wanted of it."""
    if not conf().scale_out:
        return
    with connection.cursor() as cursor:
        cursor.execute(_RUNNING, [session_lock(task_id), queueing_lock(task_id)])
        jobs = [row[0] for row in cursor.fetchall()]
    for job_id in jobs:
        _app().job_manager.cancel_job_by_id(job_id, abort=True)


def _app() -> Any:
    from procrastinate.contrib.django import app  # of the extra `scale`: in scale-out only

    return app
