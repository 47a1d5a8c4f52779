"""A thread in which requests ask the database, and the way there from the event loop and back.

`sync_to_async` goes the same way at a hundred and fifty calls of functions on the loop, because it
serves sync code that calls async code again, under any executor. What only asks the database goes
by `in_lane()`: a job in the thread's queue, and one call of the loop with what came of it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, Protocol, TypeVar

from asgiref.sync import sync_to_async

from agent.landing import land

NEAR = 8
"""Jobs of a lane that is awake, behind which another one is done sooner than in one that sleeps."""
MOMENT = 0.002
"""Seconds. A question to the database that is not answered by then may be a long one."""

P = ParamSpec("P")
T = TypeVar("T")


class Asked(Protocol):
    """Who does the jobs of a request."""

    def ask(self, work: Callable[[], T]) -> asyncio.Future[T]: ...


lent_lane: ContextVar[Asked | None] = ContextVar("lent_lane", default=None)
"""Where `in_lane()` goes; set for a request, and for the tasks that begin in it."""


async def in_lane(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work` in the request's lane; outside of a request as `sync_to_async` has it.

    It sees the caller's context variables, and changes none of them. It must not call async code.
    """
    lane = lent_lane.get()
    if lane is None:
        return await sync_to_async(work)(*args, **kwargs)
    return await lane.ask(partial(work, *args, **kwargs))


class Lane(Executor):
    """One thread, which begins with the first job and does them in their order."""

    def __init__(self, name: str) -> None:
        self.requests = 0
        """Open requests that borrow it; most are idle streams."""
        self._name = name
        self.jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self.busy = False
        self.began = 0.0
        """The job that is done now, or was last: a time of `time.monotonic()`."""
        self._lent, self._returned = 0, 0
        """Calls that may take as long as they like: begun and ended ones."""
        self._over = False
        self._lock = threading.Lock()

    def ask(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """For the event loop. Whoever stops waiting stops nothing: what was begun is done."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._put(partial(land, partial(copy_context().run, work), answer, loop))
        return answer

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        self._lent += 1
        self._put(partial(self._fulfil, future, partial(fn, *args, **kwargs)))
        return future

    def is_quick(self, now: float) -> bool:
        """It asks the database only, and not for long so far."""
        if self._lent != self._returned:
            return False
        return not self.busy or now - self.began < MOMENT

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What waits is done all the same; a job that hangs keeps nobody from leaving."""
        with self._lock:
            self._over = True
            self.jobs.put(None)
        if wait and self._thread is not None:
            self._thread.join()

    def _put(self, job: Callable[[], object]) -> None:
        with self._lock:  # behind the end of the queue nobody would come to it
            if self._over:
                raise RuntimeError("This lane was shut down.")
            self.jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def _fulfil(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            if future.set_running_or_notify_cancel():
                _tell(future, work)
        finally:
            self._returned += 1

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            self.began, self.busy = time.monotonic(), True
            job()
            del job  # or an idle thread would keep what it was about
            self.busy = False


def nearest(lanes: Sequence[Lane], now: float) -> Lane:
    """Where a question is answered soonest: by a lane that is awake, else by the freest."""
    for lane in lanes:
        if 0 < lane.jobs.qsize() + lane.busy < NEAR and lane.is_quick(now):
            return lane
    return freest(lanes)


def freest(lanes: Sequence[Lane]) -> Lane:
    """Where the fewest jobs wait, and of those where the fewest requests are."""
    found, least = lanes[0], (sys.maxsize, 0)
    for lane in lanes:
        load = lane.jobs.qsize() + lane.busy, lane.requests
        if load < least:
            found, least = lane, load
    return found


def _tell(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the asker's
        future.set_exception(error)
    else:
        future.set_result(result)
