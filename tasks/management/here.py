"""One task, run in this process while the main thread shows it and asks.

The runner lives on an event loop in a thread of its own, with the code that the server uses, so a
server beside it keeps its hands off as long as the lease is renewed. The main thread keeps the
terminal and the signals: the first Ctrl-C asks the task to stop, the second quits at once, SIGTERM
lets go of the task so that another process continues.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from tasks import decisions, service
from tasks.approvals import Reply
from tasks.commands import Created, TaskRequest
from tasks.conf import conf
from tasks.management.feed import Feed
from tasks.models import Approval
from tasks.runner import Runner, worker_name

T = TypeVar("T")
QUIT_STATUS = 128 + signal.SIGINT


class Here:
    """Use as a context manager, in the main thread: `with Here() as here: …`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="runs", daemon=True)
        self._runner: Runner | None = None
        self._user_id = 0
        self._created: Created | None = None
        self._feed: Feed | None = None
        self._interrupts = 0
        self.terminated = False
        """SIGTERM came: the task is let go."""

    def __enter__(self) -> Here:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = conf().drain_seconds if self.terminated else 0
        if self._runner is not None:
            self._call(self._runner.drain(seconds))
        self._call(sync_to_async(connections.close_all)())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def create(self, request: TaskRequest) -> tuple[Created, Feed]:
        """Store the task and begin to run it."""
        self._user_id = request.owner_id
        self._created = created = self._call(service.create(request))
        self._feed = feed = Feed(created.task_id)
        self._runner = Runner(worker_name(), only=created.task_id, observe=feed.observe)
        self._call(self._start(self._runner, str(created.task_id)))
        if self._interrupts:
            self._submit(self._cancel())
        if self.terminated:
            feed.close()
        return created, feed

    def resolve(self, approval: Approval, reply: Reply) -> Approval:
        """Answer, and go on in this process. Raises ServiceError."""
        return self._call(self._resolve(approval, reply))

    @contextmanager
    def signals(self) -> Iterator[None]:
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, self._interrupted),
            signal.SIGTERM: signal.signal(signal.SIGTERM, self._told_to_end),
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    # ── on the event loop ─────────────────────────────────────────────────────────────────────

    async def _start(self, runner: Runner, task_id: str) -> None:
        await runner.start()
        runner.wake(task_id)

    async def _resolve(self, approval: Approval, reply: Reply) -> Approval:
        assert self._runner is not None  # questions come from a task that was created
        worker = self._runner.worker
        decided = await decisions.resolve(approval.pk, self._user_id, reply, worker=worker)
        self._runner.wake(str(approval.task_id))
        return decided

    async def _cancel(self) -> None:
        if self._created is None or self._runner is None:
            return  # `create` looks again
        await service.cancel(self._created.task_id, self._user_id)
        self._runner.cancel(str(self._created.task_id))

    # ── between the threads ───────────────────────────────────────────────────────────────────

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _submit(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            os._exit(QUIT_STATUS)  # hard, as asked: the lease runs out and somebody takes over
        self._submit(self._cancel())

    def _told_to_end(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True
        if self._feed is not None:
            self._feed.close()
