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
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from channels.db import database_sync_to_async
from django.db import DatabaseError

from tasks import approvals, keeping, starting, wiring, workspaces
from tasks.commands import Accepted
from tasks.conf import conf
from tasks.hub import Key, hub
from tasks.journal import Observer
from tasks.logs import task_id as logged_task
from tasks.models import Task
from tasks.runs import Ending, Run
from tasks.starting import Beginning, Begun, Start
from tasks.stopping import Stop
from tasks.watching import disown, look, renew
from tasks.writer import WriterUnavailable, writer

logger = logging.getLogger(__name__)

RENEW_EVERY = 3
"""A lease is renewed this many times within its length."""
EXPIRE_SECONDS = 5.0
SWEEP_SECONDS = 24 * 3600.0


def worker_name() -> str:
    """host:pid of this process, as leases carry it."""
    return f"{socket.gethostname()}:{os.getpid()}"


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
        self._crowded = True
        """Somebody may wait for a place here: whoever comes now is behind them."""
        self._told = 0
        """How often either was noticed beside the watcher's looks."""
        self._draining = False

    async def start(self, previous_worker: str | None = None) -> None:
        """Take over what the previous server of this database held, then watch."""
        if previous_worker is not None:
            await writer.run(partial(disown, previous_worker))
        await asyncio.to_thread(self._models.prepare)
        self._watcher = self._spawn(self._watch(), "runs.watcher")
        if self._only is None:
            self._sweeper = self._spawn(self._sweep(), "runs.sweeper")
        self.wake()

    def wake(self, task_id: str | None = None) -> None:
        """Something may run: this task, or whatever a look at the database finds. Places that are
        waited for are given by looks, whoever waited longest first."""
        overtakes = self._crowded and self._only is None and not self._is_full()
        if task_id is None or overtakes:
            self._look.set()
        else:
            self._begin(UUID(task_id))

    def has_place(self) -> bool:
        """Whether a new task may run at once: nobody waits for a place, and this is our loop. Who
        hears that it may not stores it and rings."""
        if self._watcher is None or self._watcher.get_loop() is not asyncio.get_running_loop():
            return False
        full = self._is_full()
        if full:
            self._wait_for_a_place()  # from here on nobody overtakes
        return not (full or self._draining or self._jobs or self._only or self._waits)

    def create(self, store: Callable[[Start], Awaitable[Accepted]]) -> asyncio.Future[Accepted]:
        """Store a new task and run it, for `service.create()`. Its place is taken from here on."""
        answer: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        start = Start(task_id=uuid4(), worker=self.worker, models=self._models)
        self._start_run(start.task_id, self._begin_new(start, store, answer))
        return answer

    def take(self, task_id: UUID) -> asyncio.Task[None] | None:
        """Run a task whatever its lease says: the queue gives it to nobody else. None: we stop."""
        if not self._draining and task_id not in self._tasks:
            self._start_run(task_id, self._begin_one(task_id))
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
        full = self._is_full()
        foreign = self._only is not None and task_id != self._only
        if full:
            self._wait_for_a_place()
        if self._draining or full or foreign or self._jobs or task_id in self._tasks:
            return
        self._start_run(task_id, self._begin_one(task_id))

    def _start_run(self, task_id: UUID, begin: Coroutine[Any, Any, Begun | None]) -> None:
        task = self._spawn(self._run(task_id, begin), f"run {task_id}")
        self._tasks[task_id] = task
        task.add_done_callback(partial(self._ended, task_id))

    def _is_full(self) -> bool:
        return len(self._tasks) >= conf().max_active_runs

    def _wait_for_a_place(self) -> None:
        self._crowded = True
        self._wait_for_an_end()

    def _wait_for_an_end(self) -> None:
        self._waits = True
        self._told += 1

    def _ended(self, task_id: UUID, task: asyncio.Task[None]) -> None:
        del self._tasks[task_id]
        if self._waits:
            self._look.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("Beginning task %s broke.", task_id, exc_info=task.exception())

    async def _begin_one(self, task_id: UUID) -> Begun | None:
        begun = await starting.begin(task_id, self.worker, self._models, takes=self._jobs)
        if begun is None:
            self._wait_for_an_end()  # not its turn
        return begun

    async def _begin_new(
        self,
        start: Start,
        store: Callable[[Start], Awaitable[Accepted]],
        answer: asyncio.Future[Accepted],
    ) -> Begun | None:
        try:
            accepted = await store(start)
        except Exception as error:  # noqa: BLE001 - a refusal or worse: it is the asker's
            if not answer.done():
                answer.set_exception(error)
            return None
        if not answer.done():
            answer.set_result(accepted)
        beginning, stored = accepted.beginning, accepted.stored
        if isinstance(beginning, Beginning) and stored is not None:
            return beginning.begun(stored)
        self._wait_for_an_end()  # whoever rings for it finds this place taken
        return None

    async def _run(self, task_id: UUID, begin: Coroutine[Any, Any, Begun | None]) -> None:
        logged_task.set(str(task_id))
        try:
            begun = await begin
            if begun is None:
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

    async def _drive(self, begun: Begun) -> Ending:
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
        seen = await database_sync_to_async(look)(
            room, list(self._runs), tasks, sessions, only=self._only
        )
        # Until here an end is followed by a look: this one may have been made before it.
        self._crowded = len(seen.runnable) >= room or self._told != told
        self._waits = seen.queued or self._crowded
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
            self.wake(str(task_id))
