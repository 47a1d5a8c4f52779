"""The door between the channel layer and this process's runner.

A message on the channel `runs` is a wake-up and nothing more: the queued row is the truth, and the
watcher finds it should the message be lost. So the consumer hands over and returns at once. It
never awaits a run, which would make one run wait for another, and it survives any message.

    {"type": "run.start", "task_id": "…"}    {"type": "run.cancel", "task_id": "…"}
    {"type": "run.wake"}                     look for runnable tasks
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextvars import Context
from typing import Any, Protocol

from channels.consumer import AsyncConsumer
from channels.layers import get_channel_layer
from channels.routing import ChannelNameRouter
from channels.worker import Worker

logger = logging.getLogger(__name__)

RUNS = "runs"
PAUSE = 0.1
"""Seconds before the listener tries again after the channel layer failed."""


class Wakeable(Protocol):
    """What a consumer needs of the runner. Neither may block; an id that is none is a ValueError."""

    def wake(self, task_id: str | None = None) -> None:
        """Start this task if it is its turn, or whatever can run."""

    def cancel(self, task_id: str) -> None:
        """Stop the run of this task, if it is here."""


class RunConsumer(AsyncConsumer):
    """Starts, resumes and cancels runs on behalf of whoever sent the message."""

    def __init__(self, runner: Wakeable) -> None:
        self._runner = runner

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        """Replaces the lookup by name, which first tidies database connections in a thread."""
        try:
            self._hand_over(dict(message))
        except ValueError as error:  # an id that is none
            logger.warning("A message on %r is not understood (%s): %.200r", RUNS, error, message)

    def _hand_over(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "run.start", "task_id": str(task_id)}:
                self._runner.wake(task_id)
            case {"type": "run.cancel", "task_id": str(task_id)}:
                self._runner.cancel(task_id)
            case {"type": "run.wake"}:
                self._runner.wake()
            case _:
                raise ValueError("unknown type")


class RunWorker(Worker):
    """A Channels worker on the server's own event loop, in a context of its own.

    Unlike `runworker` it outlives a bad message and a failing channel layer, and it ends clean.
    """

    def __init__(self, runner: Wakeable) -> None:
        router = ChannelNameRouter({RUNS: RunConsumer.as_asgi(runner=runner)})
        layer = get_channel_layer()
        assert layer is not None  # CHANNEL_LAYERS has a default
        super().__init__(router, [RUNS], layer)
        self._listening: asyncio.Task[None] | None = None
        self._stopped = False

    def ensure_started(self) -> None:
        """Idempotent; must be called on the server's loop."""
        if self._stopped or (self._listening is not None and not self._listening.done()):
            return
        loop = asyncio.get_running_loop()
        self._listening = loop.create_task(self._listen(), name="runs", context=Context())
        self._listening.add_done_callback(self._revive)

    async def stop(self) -> None:
        """Returns when neither listener nor consumer is left."""
        self._stopped = True
        consumers = [details["future"] for details in self.application_instances.values()]
        self.application_instances.clear()
        tasks = [task for task in (self._listening, *consumers) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                await self.listener(RUNS)
            except Exception:  # no message and no layer failure may end the only door to runs
                logger.exception("The listener on %r failed; it goes on", RUNS)
                await asyncio.sleep(PAUSE)

    def _revive(self, ended: asyncio.Task[None]) -> None:
        if not self._stopped:
            logger.error("The listener on %r was ended from outside; it starts again", RUNS)
            self.ensure_started()

    def get_or_create_application_instance(
        self, scope_id: str, scope: dict[str, Any]
    ) -> asyncio.Queue[Any]:
        """A consumer that ended is replaced before the message is handed over, not some time after."""
        held = self.application_instances.get(scope_id)
        if held is not None and held["future"].done():
            del self.application_instances[scope_id]
        return super().get_or_create_application_instance(scope_id, scope)  # type: ignore[no-untyped-call,no-any-return]

    async def application_send(self, scope: dict[str, Any], message: Mapping[str, Any]) -> None:
        """Nobody listens to what the consumer would say."""
