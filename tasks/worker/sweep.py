"""The safety net under the queue: nothing that can run stays without a worker.

Every two seconds each worker looks for jobs whose worker is dead, and for tasks that could run and
have no job that would run them. A dead job is closed and another one takes its place: the worker
that was only paused can then end what it held without ending the new one. Workers that look at the
same time do it once, because everything is decided under the lock of the task's row.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from functools import partial
from uuid import UUID

from channels.db import database_sync_to_async
from django.db import DatabaseError, connection
from django.db.models import Exists, OuterRef, QuerySet, TextField, Value
from django.db.models.functions import Cast, Concat
from django.utils import timezone
from procrastinate import App
from procrastinate.contrib.django.models import ProcrastinateEvent, ProcrastinateJob
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job

from tasks import dispatch
from tasks.models import Task
from tasks.watching import runnable
from tasks.writer import WriterUnavailable, writer

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
STALLED_SECONDS = 6.0
"""A worker that was silent for so long is dead."""
SWEEP_SECONDS = 2.0
LOST_SECONDS = 15
"""A job that has not begun its task after this never will: its worker lost it with a connection."""


async def sweep_for_ever(app: App) -> None:
    """Owned by the worker process; ends when it is cancelled."""
    while True:
        try:
            await sweep(app)
        except (DatabaseError, WriterUnavailable, ConnectorException) as trouble:
            logger.error("The sweep could not reach the database: %s", trouble)
        except Exception:
            # The boundary of one look: the next one finds what this one missed.
            logger.exception("The sweep stumbled and goes on.")
        await asyncio.sleep(SWEEP_SECONDS)


async def sweep(app: App) -> None:
    """Once."""
    manager = app.job_manager
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_SECONDS):
        await writer.run(partial(_replace, job))
    for task_id in await database_sync_to_async(_abandoned)():
        await writer.run(partial(_adopt, task_id))


def _replace(job: Job) -> None:
    """Command: the job is over; its task gets another one."""
    task = _task_of(job)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM procrastinate_jobs WHERE id = %s AND status = 'doing' FOR UPDATE",
            [job.id],
        )
        if cursor.fetchone() is None:
            return  # another worker was faster
        cursor.execute("SELECT procrastinate_finish_job_v1(%s, 'failed', false)", [job.id])
    if task is not None and task.status in Task.OPEN:
        logger.warning("The worker of task %s is silent: it gets another one.", task.pk)
        dispatch.offer(task.pk, attempt=int(str(job.task_kwargs.get("attempt", 0))) + 1)


def _task_of(job: Job) -> Task | None:
    if job.task_name != dispatch.RUN_TASK:
        return None
    return Task.objects.select_for_update().filter(pk=str(job.task_kwargs["task_id"])).first()


def _abandoned() -> list[UUID]:
    return list(_without_job().values_list("pk", flat=True)[:1000])


def _without_job() -> QuerySet[Task]:
    """What can run, with no job that waits and none that has it in hand."""
    lock = Concat(Value("task:"), Cast(OuterRef("pk"), TextField()))
    session = Concat(Value("session:"), Cast(OuterRef("session_id"), TextField()))
    waiting = ProcrastinateJob.objects.filter(queueing_lock=lock, status="todo")
    # By the session first: that is what the index of running jobs is made of.
    running = ProcrastinateJob.objects.filter(lock=session, queueing_lock=lock, status="doing")
    long_ago = ProcrastinateEvent.objects.filter(
        job=OuterRef("pk"), type="started", at__lt=timezone.now() - timedelta(seconds=LOST_SECONDS)
    )
    ready = Task.objects.filter(runnable(), status__in=Task.OPEN)
    return ready.exclude(Exists(waiting)).exclude(Exists(running.exclude(Exists(long_ago))))


def _adopt(task_id: UUID) -> None:
    """Command: looked at again under its lock, it gets a job."""
    Task.objects.select_for_update().get(pk=task_id)
    if not _without_job().filter(pk=task_id).exists():
        return
    for job in _lost_jobs(task_id):
        _replace(job.procrastinate_job)
    dispatch.offer(task_id)


def _lost_jobs(task_id: UUID) -> QuerySet[ProcrastinateJob]:
    return ProcrastinateJob.objects.filter(
        lock=dispatch.session_lock(task_id),
        queueing_lock=dispatch.queueing_lock(task_id),
        status="doing",
    )
