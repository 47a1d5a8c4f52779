"""The process's one writer thread: every change of a task is a command that runs here.

A command is a small synchronous callable that reads and writes through the ORM: compare-and-swap,
row changes and events together. What the module promises:

1. Commands run in the order of their submission, in one thread with one connection. What waits in
   the queue (at most 256) shares one transaction; nobody waits for a batch to fill.
2. One that raises fails alone and leaves nothing behind. Few do, so a batch is executed without
   savepoints first, and once more with one for each command when one of them has raised.
3. A submitter goes on only after COMMIT, and after the `transaction.on_commit` callbacks of its
   command, which run in the order of submission: bells ring before anybody acts on the answer.
   What these leave for an event loop (`tasks.loops`) wakes it together with the submitters.
4. Commands that are `Together` and stand side by side in a batch are executed as one.
5. A command may be executed again when its first execution was rolled back as a whole. It changes
   rows, never Python state, and leaves everything else to `transaction.on_commit`.
6. Nobody waits for ever: a thread that dies fails what it held, and the next submission starts a
   new one.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import groupby
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from django.db import DatabaseError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks import keepalive, loops

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_BATCH = 256
ALIAS = "default"


class WriterUnavailable(Exception):
    """The database could not be reached or did not commit."""

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown
        """True when the connection broke during COMMIT: the command may have been stored."""


class Together(Generic[T]):
    """A command that costs little more when others of its kind are executed at the same time."""

    def __call__(self) -> T:
        """Alone."""
        raise NotImplementedError

    @staticmethod
    def together(commands: Sequence[Any]) -> Sequence[T]:
        """The results of several of this class, or of one, in their order. What it raises rolls the
        batch back, and each is executed alone."""
        raise NotImplementedError


class _Job(Generic[T]):
    """One submitted command and what became of it."""

    def __init__(self, command: Callable[[], T]) -> None:
        self.command = command
        self.result: T | None = None
        self.error: Exception | None = None
        self.future: asyncio.Future[None] | None = None
        self.done: threading.Event | None = None
        self.delivered = False

    def attempt(self) -> None:
        """Execute it, in a savepoint."""
        self.result, self.error = None, None
        try:
            with transaction.atomic():
                self.result = self.command()
        except Exception as error:  # noqa: BLE001 - whatever a command raises belongs to its submitter
            self.error = error

    def outcome(self) -> T:
        """For the submitter, once. An error knows the frames that it came through, and these know
        the job: it is taken out of there."""
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error
        return cast(T, self.result)


class _Spoiled(Exception):
    """A command without a savepoint raised: the others have to be executed anew."""


class _Fate(Enum):
    """What became of a transaction."""

    COMMITTED = "committed"
    SPOILED = "spoiled"  # rolled back because a command raised
    ROLLED_BACK = "rolled back"  # for certain: nothing of it is stored
    UNKNOWN = "unknown"  # the connection broke during COMMIT


class Writer:
    """Runs commands in its thread, which starts with the first one."""

    def __init__(self) -> None:
        self._reset()
        myself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _reset_if_alive(myself))

    def _reset(self) -> None:
        """Also in a forked child: the thread, its jobs and a perhaps held lock stay with the parent."""
        self._lock = threading.Lock()
        self._queue: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, command: Callable[[], T]) -> T:
        """Execute `command`; its result, or what it raised, after COMMIT. Works on any event loop.

        A caller that is cancelled while it waits does not take the command back: it still runs.
        Whoever must learn the outcome awaits `asyncio.shield(writer.run(…))`.
        """
        self._refuse_own_thread()
        job = _Job(command)
        job.future = asyncio.get_running_loop().create_future()
        self._submit(job)
        await job.future
        return job.outcome()

    def run_sync(self, command: Callable[[], T]) -> T:
        """The same for code in threads; blocks until COMMIT."""
        _refuse_event_loop()
        self._refuse_own_thread()
        _refuse_inside_transaction()  # on an event loop Django lets nobody open one
        job = _Job(command)
        job.done = threading.Event()
        self._submit(job)
        job.done.wait()
        return job.outcome()

    def stop(self) -> None:
        """Execute what was submitted, close the connection, end the thread. Usable again afterwards."""
        self._refuse_own_thread()
        with self._lock:
            thread, queue = self._thread, self._queue
            self._thread, self._queue = None, SimpleQueue()
        atexit.unregister(self.stop)
        if thread is not None:
            queue.put(None)
            thread.join()

    def _submit(self, job: _Job[Any]) -> None:
        with self._lock:
            if self._thread is None:
                self._start()
            self._queue.put(job)

    def _start(self) -> None:
        self._thread = threading.Thread(
            target=self._main, args=(self._queue,), name="tasks.writer", daemon=True
        )
        self._thread.start()
        atexit.register(self.stop)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError(
                "The writer was called from inside a command. Call the other command's function "
                "directly: it runs in the same transaction."
            )

    def _main(self, queue: SimpleQueue[_Job[Any] | None]) -> None:
        batch: list[_Job[Any]] = []
        loops.gather()
        try:
            while _take(queue, batch):
                _perform(batch)
                batch.clear()
        except BaseException:
            logger.exception("The writer thread ends; the next command starts another.")
            raise
        finally:
            self._retire(queue, batch)
            connections.close_all()

    def _retire(self, queue: SimpleQueue[_Job[Any] | None], batch: list[_Job[Any]]) -> None:
        """After `stop()` there is nothing left to do; after a crash somebody may wait."""
        with self._lock:  # a submission comes before the drain below, or starts another thread
            if self._queue is queue:
                self._thread, self._queue = None, SimpleQueue()
        begun = [job for job in batch if not job.delivered]
        waiting = _drain(queue)
        for job in begun:
            job.error = WriterUnavailable("The writer thread ended in this command.", unknown=True)
        for job in waiting:
            job.error = WriterUnavailable("The writer thread ended before this command.")
        _deliver([*begun, *waiting])


def _reset_if_alive(reference: weakref.ref[Writer]) -> None:
    instance = reference()
    if instance is not None:
        instance._reset()


def _refuse_inside_transaction() -> None:
    """The writer would wait for the caller's locks while the caller waits for the writer."""
    if any(connection.in_atomic_block for connection in connections.all(initialized_only=True)):
        raise RuntimeError(
            "The writer was called while a transaction is open in this thread: the two would wait "
            "for each other. Submit the whole change as one command, outside of atomic()."
        )


def _refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("run_sync() would block the event loop: use `await writer.run(…)`.")


def _take(queue: SimpleQueue[_Job[Any] | None], batch: list[_Job[Any]]) -> bool:
    """Wait for a job, then take what else is queued. False: it was told to end."""
    job = queue.get()
    while job is not None:
        batch.append(job)
        if len(batch) == MAX_BATCH:
            return True
        try:
            job = queue.get_nowait()
        except Empty:
            return True
    if batch:
        queue.put(None)  # found behind other jobs: those first
    return bool(batch)


def _drain(queue: SimpleQueue[_Job[Any] | None]) -> list[_Job[Any]]:
    jobs = []
    while not queue.empty():
        job = queue.get_nowait()
        if job is not None:
            jobs.append(job)
    return jobs


def _perform(batch: Sequence[_Job[Any]]) -> None:
    """Execute a batch; whoever can be answered is answered before others are tried again."""
    fate, error = _transaction(batch, savepoints=False)
    if fate is _Fate.SPOILED:
        fate, error = _transaction(batch)
    if fate is _Fate.UNKNOWN:
        _fail(batch, error, unknown=True)
        connections[ALIAS].close()
    again = batch if fate is _Fate.ROLLED_BACK else [job for job in batch if _is_passing(job)]
    _deliver([job for job in batch if job not in again] if again else batch)
    if again:
        _alone(again, error)


def _alone(jobs: Sequence[_Job[Any]], trouble: Exception | None) -> None:
    """Once more, each in its own transaction: a bad one cannot spoil the others."""
    if trouble is not None:
        logger.warning("A batch of %d commands is repeated one by one: %s", len(jobs), trouble)
        connections[ALIAS].close()
    for position, job in enumerate(jobs):
        fate, error = _transaction([job])
        if fate is not _Fate.COMMITTED:
            _settle_failure(job, error, unknown=fate is _Fate.UNKNOWN)
        unavailable = isinstance(job.error, WriterUnavailable)
        _deliver([job])
        if unavailable:
            connections[ALIAS].close()
            rest = jobs[position + 1 :]  # each would wait as long, to hear the same
            _fail(rest, error)
            _deliver(rest)
            return


def _transaction(
    jobs: Sequence[_Job[Any]], *, savepoints: bool = True
) -> tuple[_Fate, Exception | None]:
    """Execute jobs in one transaction; each that was committed or refused knows its outcome."""
    connection = connections[ALIAS]
    committing: object = None
    try:
        keepalive.opened(connection)
        with transaction.atomic():
            if len(jobs) > 1:
                keepalive.limit_patience(connection)
            if savepoints:
                _attempt_each(connection, jobs)
            else:
                _attempt_all(connection, jobs)
            _protect_callbacks(connection)
            committing = connection.connection
    except _Spoiled:
        return _Fate.SPOILED, None
    except Exception as error:  # noqa: BLE001 - BEGIN, COMMIT or the connection: whatever it was, every submitter must hear
        certain = committing is None or _survived(connection, committing)
        return (_Fate.ROLLED_BACK if certain else _Fate.UNKNOWN), error
    return _Fate.COMMITTED, None


def _attempt_each(connection: BaseDatabaseWrapper, jobs: Sequence[_Job[Any]]) -> None:
    for job in jobs:
        job.attempt()
        _require_connection(connection, job)


def _attempt_all(connection: BaseDatabaseWrapper, jobs: Sequence[_Job[Any]]) -> None:
    """Without savepoints: whatever is raised spoils the transaction."""
    for kind, several in groupby(jobs, _kind):
        side_by_side = list(several)
        commands = [job.command for job in side_by_side]
        try:
            results = [each() for each in commands] if kind is None else kind.together(commands)
        except Exception as error:  # it belongs to one of them: each is executed once more
            raise _Spoiled from error
        for job, result in zip(side_by_side, results, strict=True):
            job.result, job.error = result, None
    _require_connection(connection, jobs[-1])


def _kind(job: _Job[Any]) -> type[Together[Any]] | None:
    return type(job.command) if isinstance(job.command, Together) else None


def _survived(connection: BaseDatabaseWrapper, driver: object) -> bool:
    """Whoever still talks to us after a failed COMMIT has rolled back.

    Django opens another connection at once when its rollback finds the first one dead.
    """
    return connection.connection is driver and connection.is_usable()


def _protect_callbacks(connection: Any) -> None:
    """One that raises is logged by Django and does not keep those behind it from running."""
    connection.run_on_commit = [
        (sids, callback, True) for sids, callback, _ in connection.run_on_commit
    ]


def _require_connection(connection: BaseDatabaseWrapper, job: _Job[Any]) -> None:
    """Going back to a savepoint needs a living connection; without it nothing of the batch counts."""
    if connection.needs_rollback:
        raise job.error or OperationalError("A command demanded the rollback of its transaction.")


def _is_passing(job: _Job[Any]) -> bool:
    """Locks and deadlocks pass: worth one more try."""
    return isinstance(job.error, OperationalError)


def _settle_failure(job: _Job[Any], error: Exception | None, *, unknown: bool) -> None:
    """Of a transaction with one command: what the command did wrong, or what the database did."""
    command_is_guilty = isinstance(error, DatabaseError) and not isinstance(error, OperationalError)
    if command_is_guilty and not unknown:
        job.error = error  # e.g. a deferred constraint, which speaks at COMMIT
    else:
        _fail([job], error, unknown=unknown)


def _fail(jobs: Iterable[_Job[Any]], cause: Exception | None, *, unknown: bool = False) -> None:
    text = "It is unknown whether the change was stored" if unknown else "Nothing was stored"
    for job in jobs:
        job.error = WriterUnavailable(f"{text}: {cause}", unknown=unknown)
        job.error.__cause__ = cause


def _deliver(jobs: Iterable[_Job[Any]]) -> None:
    """What callbacks left, then the submitters, in order; each event loop is woken once."""
    waiting: defaultdict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = defaultdict(list)
    for loop, call in loops.take():
        waiting[loop].append(call)
    threads: list[threading.Event] = []
    for job in jobs:
        job.delivered = True
        if job.done is not None:
            threads.append(job.done)
        elif job.future is not None:
            waiting[job.future.get_loop()].append(partial(_wake, job.future))
    for loop, calls in waiting.items():
        loops.call_all(loop, calls)
    for done in threads:  # behind the bells, as everybody
        done.set()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():  # its submitter was cancelled
        future.set_result(None)


writer = Writer()
