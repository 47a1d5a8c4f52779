"""Django's handler on a few long-lived threads.

Stock Django makes a thread for every request and keeps it while the response streams: 300 idle
streams are 300 threads, and as many database connections once their views asked the database.
Here each request borrows one of a few single-thread executors, its lane. The threads live as long
as the server, so database connections are reused (`CONN_MAX_AGE` may be None).

A sync view that blocks holds up its lane only: new requests go where the fewest jobs wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.http.response import HttpResponseBase

from streaming.asgi.streams import EventStream, Request, is_stream
from streaming.asgi.wire import Receive, Scope, Send

LANES = 8
OPENING = 16
"""Streams that are on their way through Django at a time: enough to keep the lanes busy. When
hundreds come back at once the others cost nothing yet; memory that was needed once is seldom given
back."""

P = ParamSpec("P")
T = TypeVar("T")


class Lane(ThreadPoolExecutor):
    """One thread, its jobs in order, and how much is asked of it."""

    def __init__(self, name: str) -> None:
        super().__init__(max_workers=1, thread_name_prefix=name)
        self.requests = 0
        """Open requests that borrow it; most are idle streams."""
        self._jobs = 0
        self._lock = threading.Lock()  # jobs end in the lane's thread, or where they are cancelled

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        with self._lock:
            self._jobs += 1
        try:
            future = super().submit(fn, *args, **kwargs)
        except RuntimeError:  # shut down: nothing will ever count this job off
            self._job_ended()
            raise
        future.add_done_callback(self._job_ended)
        return future

    def _job_ended(self, _: Future[Any] | None = None) -> None:
        with self._lock:
            self._jobs -= 1

    def load(self) -> tuple[int, int]:
        """Smaller is freer."""
        return self._jobs, self.requests


class LaneHandler(ASGIHandler):
    """Lends each request the freest lane. Settings and apps must be ready before one is made."""

    def __init__(self, lanes: int = LANES) -> None:
        super().__init__()
        self._lanes = [Lane(f"lane-{number}") for number in range(lanes)]
        self._opening = asyncio.Semaphore(OPENING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        lane = min(self._lanes, key=Lane.load)
        lane.requests += 1
        request = Request(receive, send)
        try:
            async with ThreadSensitiveContext(executor=lane):
                if not is_stream(scope):
                    await self.handle(scope, request.receive, request)
                    return
                async with self._opening:
                    # A task of its own: what Django puts into its context goes with it.
                    await asyncio.create_task(self.handle(scope, request.receive, request))
                scope["headers"] = ()
                await request.finish()
        finally:
            lane.requests -= 1

    async def send_response(self, response: HttpResponseBase, send: Send) -> None:
        """A stream is kept until the handler has ended."""
        if isinstance(response, EventStream) and isinstance(send, Request):
            send.keep(response)
        else:
            await super().send_response(response, send)

    async def close(self, seconds: float) -> None:
        """Closes each lane's database connections and ends it; a blocked lane is left behind."""
        loop = asyncio.get_running_loop()
        closing = [loop.run_in_executor(lane, connections.close_all) for lane in self._lanes]
        for lane in self._lanes:
            lane.shutdown(wait=False)
        await asyncio.wait(closing, timeout=seconds)
