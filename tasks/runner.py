"""The runs of this process: started, watched, cancelled, drained.

A run belongs to the runner, never to the request that asked for it: its asyncio task is created in
a fresh context and referenced here until it ends. The rows are the truth and every bell only saves
time: the watcher finds within half a second what nobody rang for.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.db.models import DateTimeField, Exists, Model, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks import approvals, keeping, starting, wiring, workspaces
from tasks.commands import lease
from tasks.conf import conf
from tasks.hub import Key, hub
from tasks.logs import task_id as logged_task
from tasks.models import Approval, Session, Task
from tasks.runs import Ending, Observer, Run, Stop
from tasks.statements import Prepared, Slot, UpdateEach, fetch, key_of
from tasks.writer import WriterUnavailable, writer

logger = logging.getLogger(__name__)

RENEW_EVERY = 3
"""A lease is renewed this many times within its length."""
EXPIRE_SECONDS = 5.0
SWEEP_SECONDS = 24 * 3600.0


def worker_name() -> str:
    """host:pid of this process, as leases carry it."""
    return f"{socket.gethostname()}:{os.getpid()}"


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


class Runner:
    """One per process, on one event loop. With `only`, it runs that task and no other; with `jobs`,
    what it is handed by `take()` and nothing else."""

    def __init__(
        self,
        worker: str,
        models: wiring.Models | None = None,
        *,
        only: UUID | None = None,
        jobs: bool = False,
        observe: Observer | None = None,
    ) -> None:
        self.worker = worker
        self._only = only
        self._jobs = jobs
        self._observe = observe
        self._models = models or wiring.Models()
        self._tasks: dict[UUID, asyncio.Task[None]] = {}
        """Everything that begins or runs a task here."""
        self._runs: dict[UUID, Run] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._waits = True
        """Something may wait for the end of a run here: for its place, or for its turn."""
        self._told = 0
        """How often that was noticed beside the watcher's looks."""
        self._draining = False

    async def start(self, previous_worker: str | None = None) -> None:
        """Take over what the previous server of this database held, then watch."""
        if previous_worker is not None:
            await writer.run(partial(_disown, previous_worker))
        await asyncio.to_thread(self._models.prepare)
        self._watcher = self._spawn(self._watch(), "runs.watcher")
        if self._only is None:
            self._sweeper = self._spawn(self._sweep(), "runs.sweeper")
        self.wake()

    def wake(self, task_id: str | None = None) -> None:
        """Something may run: this task, or whatever a look at the database finds."""
        if task_id is None:
            self._look.set()
        else:
            self._begin(UUID(task_id))

    def take(self, task_id: UUID) -> asyncio.Task[None] | None:
        """Run a task whatever its lease says: the queue gives it to nobody else. None: we stop."""
        if not self._draining and task_id not in self._tasks:
            self._start_run(task_id)
        return self._tasks.get(task_id)

    def cancel(self, task_id: str) -> None:
        """A person asked for the end of a task; the row says who."""
        run = self._runs.get(UUID(task_id))
        if run is not None:
            run.stop(Stop.CANCEL)

    def forget(self, task_id: UUID) -> None:
        """Stop the run of a task without a word: somebody else owns it."""
        run = self._runs.get(task_id)
        if run is not None:
            run.stop(Stop.LOST)

    async def drain(self, seconds: float) -> None:
        """No new runs; running tools get so long; leases are released; the pool is closed."""
        self._draining = True
        await asyncio.gather(*(run.wind_down(seconds) for run in list(self._runs.values())))
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()))
        # Until here the watcher renewed the leases of what was still running.
        helpers = {task for task in (self._watcher, self._sweeper) if task is not None}
        for task in helpers:
            task.cancel()
        if helpers:
            await asyncio.wait(helpers)
        await self._models.aclose()

    @property
    def active(self) -> int:
        return len(self._tasks)

    # ── runs ─────────────────────────────────────────────────────────────────────────────────

    def _begin(self, task_id: UUID) -> None:
        full = len(self._tasks) >= conf().max_active_runs
        foreign = self._only is not None and task_id != self._only
        if full:
            self._wait_for_an_end()
        if self._draining or full or foreign or self._jobs or task_id in self._tasks:
            return
        self._start_run(task_id)

    def _start_run(self, task_id: UUID) -> None:
        task = self._spawn(self._run(task_id), f"run {task_id}")
        self._tasks[task_id] = task
        task.add_done_callback(partial(self._ended, task_id))

    def _wait_for_an_end(self) -> None:
        self._waits = True
        self._told += 1

    def _ended(self, task_id: UUID, task: asyncio.Task[None]) -> None:
        del self._tasks[task_id]
        if self._waits:
            self._look.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("Beginning task %s broke.", task_id, exc_info=task.exception())

    async def _run(self, task_id: UUID) -> None:
        logged_task.set(str(task_id))
        try:
            begun = await starting.begin(task_id, self.worker, self._models, takes=self._jobs)
            if begun is None:
                self._wait_for_an_end()  # not its turn
                return
            ending = await self._drive(begun)
            if ending is not Ending.ENDED:
                # Whoever rang for it meanwhile, because a person decided, was not heard.
                self._wait_for_an_end()
            logger.info("Run %d ended: %s.", begun.run, ending.value)
        except (WriterUnavailable, DatabaseError) as trouble:
            logger.error("The database failed the run; its lease runs out: %s", trouble)
        except Task.DoesNotExist:
            logger.warning("Told to run a task that does not exist.")
        except (
            Exception
        ):  # the boundary of a run: what cannot be begun must end, not be tried for ever
            logger.exception("The task could not be begun.")
            await writer.run(partial(starting.give_up, task_id, self.worker, takes=self._jobs))

    async def _drive(self, begun: starting.Begun) -> Ending:
        task = begun.task
        run = Run(begun=begun, kit=begun.kit, observe=self._observe)
        self._runs[task.pk] = run
        if self._draining:
            # The drain began while this run was being begun, and did not see it.
            run.stop(Stop.SHUTDOWN)
        stored = begun.stored
        hub.running(str(task.pk), stored.session_id, stored.last_sequence, stored.last_position)
        try:
            return await run.drive()
        finally:
            hub.idle(str(task.pk))
            del self._runs[task.pk]
            await self._remember(begun.choice)

    async def _remember(self, choice: wiring.Choice) -> None:
        """What a model's server taught us is known before the next run of any process."""
        for lesson in choice.lessons:
            await lesson.keep()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """In a fresh context: a run must not inherit a request's thread and connection."""
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name, context=contextvars.Context())

    # ── watching ─────────────────────────────────────────────────────────────────────────────

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        renew_at = expire_at = loop.time()
        while True:
            try:
                await self._look_around()
                if loop.time() >= renew_at:
                    renew_at = loop.time() + conf().lease_seconds / RENEW_EVERY
                    await self._renew()
                if loop.time() >= expire_at:
                    expire_at = loop.time() + EXPIRE_SECONDS
                    await self._expire()
            except (WriterUnavailable, DatabaseError) as trouble:
                logger.error("The watcher could not reach the database: %s", trouble)
            except Exception:
                # The boundary of one look: without a watcher no lease is renewed and nothing is
                # recovered, so an error of ours must not be its end.
                logger.exception("The watcher stumbled and goes on.")
            await self._pause()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(conf().watch_seconds):
                await self._look.wait()
        except TimeoutError:
            pass
        self._look.clear()

    async def _look_around(self) -> None:
        room = 0 if self._draining or self._jobs else conf().max_active_runs - len(self._tasks)
        tasks, sessions = hub.followed()
        told = self._told
        seen = await database_sync_to_async(_look)(
            room, list(self._runs), tasks, sessions, only=self._only
        )
        # Until here an end is followed by a look: this one may have been made before it.
        self._waits = seen.queued or len(seen.runnable) >= room or self._told != told
        for task_id in seen.runnable:
            self._begin(task_id)
        for task_id in seen.cancelled:
            self.cancel(str(task_id))
        for task_id, last in seen.tasks.items():
            hub.advanced(Key("task", str(task_id)), last)
        for session_id, last in seen.sessions.items():
            hub.advanced(Key("session", str(session_id)), last)

    async def _sweep(self) -> None:
        """Once a day, beside everything else: files that a crash left half written, and what was
        kept for undoing long enough."""
        while True:
            try:
                folders = await database_sync_to_async(workspaces.roots)()
                removed = await asyncio.to_thread(workspaces.sweep, folders)
                if removed:
                    logger.info("Removed %d half-written files that a crash had left.", removed)
                await asyncio.to_thread(keeping.sweep)
            except DatabaseError as trouble:
                logger.error("The workspaces could not be swept: %s", trouble)
            except Exception:
                # The boundary of one sweep: a folder that cannot be read must not be the last one.
                logger.exception("The sweep stumbled; the next one comes in a day.")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _renew(self) -> None:
        """Whatever cannot be renewed belongs to somebody else now."""
        held = {task_id: run.begun.run for task_id, run in self._runs.items()}
        if not held:
            return
        kept = await writer.run(partial(renew, self.worker, held))
        for task_id in held.keys() - kept:
            run = self._runs.get(task_id)
            if run is not None and run.begun.run == held[task_id]:
                self.forget(task_id)

    async def _expire(self) -> None:
        for task_id in await writer.run(approvals.expire_due):
            self._begin(task_id)


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


def _look(
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


def _disown(worker: str) -> None:
    """Command: what a dead server held is free at once, without waiting for its leases."""
    Task.objects.filter(lease_worker=worker, status__in=Task.OPEN).update(lease_expires_at=None)
