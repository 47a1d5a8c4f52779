"""The jobs of the queue: running a task, and what has to happen by the clock.

A job hands its task to the process's runner and lasts as long as the run. It never fails because
of a run: how that ended is in the task's log. A run that stops for a person ends its job; the
answer is the next one.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from channels.db import database_sync_to_async
from procrastinate import Blueprint, JobContext
from procrastinate.exceptions import JobAborted
from procrastinate.job_context import AbortReason

from tasks import dispatch, schedules, starting
from tasks.models import Task
from tasks.runner import Runner
from tasks.writer import writer

UPKEEP = "upkeep"
"""The queue of what happens by the clock; it never waits behind runs."""
MAX_ATTEMPTS = 10
"""So many jobs in a row that died with a task, and it is given up. A resume is not an attempt."""
KEPT_HOURS = 72
"""How long ended jobs can be looked at."""

_CLOCK = ThreadPoolExecutor(1, thread_name_prefix="clock")


def jobs_for(runner: Runner) -> Blueprint:
    """What a worker process can do."""
    jobs = Blueprint()

    @jobs.task(name=dispatch.RUN_TASK, queue=dispatch.QUEUE, pass_context=True)
    async def run_task(context: JobContext, task_id: str, attempt: int = 0) -> None:
        key = UUID(task_id)
        if attempt >= MAX_ATTEMPTS:
            await writer.run(partial(starting.fail_recovery, key))
            return
        run = runner.take(key)
        if run is None:  # this process stops
            await writer.run(partial(hand_back, key))
            return
        try:
            await asyncio.shield(run)
        except asyncio.CancelledError:
            if context.abort_reason() is AbortReason.USER_REQUEST:
                runner.cancel(task_id)
            await asyncio.wait({run})
            raise JobAborted from None

    @jobs.periodic(cron="* * * * *")
    @jobs.task(name="run_schedules", queue=UPKEEP, queueing_lock="run_schedules")
    async def run_schedules(timestamp: int) -> None:
        """Each due time is claimed by a row that can exist once: two at a time do no harm."""
        run_due = database_sync_to_async(schedules.run_due, thread_sensitive=False, executor=_CLOCK)
        await run_due()

    @jobs.periodic(cron="17 * * * *")
    @jobs.task(
        name="forget_old_jobs", queue=UPKEEP, queueing_lock="forget_old_jobs", pass_context=True
    )
    async def forget_old_jobs(context: JobContext, timestamp: int) -> None:
        await context.app.job_manager.delete_old_jobs(
            nb_hours=KEPT_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
        )

    return jobs


def hand_back(task_id: UUID) -> None:
    """Command: another worker shall take it."""
    Task.objects.select_for_update().get(pk=task_id)
    dispatch.offer(task_id)
