"""The application that servers load: `daphne config.asgi:application`, or uvicorn, or runserver.

Puts the shims of `streaming.asgi` around Django and lets the background live as long as the
server: the lock of the database, the hub, the runner, and the worker that hears the channel `runs`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from contextlib import AsyncExitStack

import django
from django.core.exceptions import ImproperlyConfigured

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
try:
    django.setup(set_prefix=False)
except ImproperlyConfigured as error:
    raise SystemExit(f"pilothouse: {error}") from error

from django.conf import settings as django_settings

import config.urls  # noqa: F401 - every page is there before the first request
from agent.workspace import MAX_WRITE_BYTES
from streaming.asgi.body import BodyLimit, Bounds, bound_daphne
from streaming.asgi.eager import hasten_daphne
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import LaneHandler
from streaming.asgi.lifetime import Lifetime, StartError
from streaming.asgi.pressure import BackPressure
from tasks import allocator, garbage, server_lock
from tasks.api.files import UPLOADS
from tasks.conf import conf
from tasks.consumers import RunWorker
from tasks.hub import Peers, hub
from tasks.notify import Notifier
from tasks.runner import Runner, worker_name
from tasks.service import here

logger = logging.getLogger(__name__)

SWITCH_SECONDS = 0.002
"""A thread gives the interpreter up in every statement that it sends to the database and, while the
event loop is busy, gets it back after so long. With Python's 5 ms a command takes ten times that; with
half a millisecond the threads hand it to and fro (docs/performance.md has both)."""
DRAIN_GRACE_SECONDS = 0.5
STREAMS_SECONDS = 1.0
"""What streams get to end, after the runs have drained."""
LANES_SECONDS = 0.5
LAST_SECONDS = 2.5
"""After draining so much is left to everything else: with the default, 7.5 s in all."""


class Background:
    """What lives as long as the server, taken up in order and given back in reverse."""

    def __init__(self, handler: LaneHandler, exchanges: OpenExchanges) -> None:
        self._handler = handler
        self._exchanges = exchanges
        self._held = AsyncExitStack()

    async def start(self) -> None:
        allocator.bound()
        sys.setswitchinterval(SWITCH_SECONDS)
        garbage.calm()
        async with AsyncExitStack() as held:
            if conf().scale_out:
                await self._listen_to_others(held)
            else:
                await self._run_here(held)
            notifier = Notifier()
            held.push_async_callback(notifier.stop)
            notifier.start()
            self._held = held.pop_all()

    async def _run_here(self, held: AsyncExitStack) -> None:
        """Embedded: this server alone runs the tasks of its database."""
        settings, worker = conf(), worker_name()
        lock = await asyncio.to_thread(_lock, worker)
        await held.enter_async_context(server_lock.kept(lock))
        runner = Runner(worker)
        listener = RunWorker(runner)
        held.push_async_callback(listener.stop)
        self._listen(held)
        held.push_async_callback(_drain, runner, lock, settings.drain_seconds)
        await runner.start(lock.previous_worker or None)
        listener.ensure_started()
        here.runner = runner
        held.callback(setattr, here, "runner", None)

    async def _listen_to_others(self, held: AsyncExitStack) -> None:
        """Scale-out: workers run the tasks, the relay brings what they say."""
        from tasks.relay.exchange import Exchange  # of the extra `scale`

        lock = await asyncio.to_thread(_shared_lock)
        await held.enter_async_context(server_lock.kept(lock))
        exchange = Exchange()
        await exchange.start()
        held.push_async_callback(exchange.stop)
        self._listen(held, exchange)

    def _listen(self, held: AsyncExitStack, peers: Peers | None = None) -> None:
        """What streams need."""
        held.push_async_callback(self._handler.close, LANES_SECONDS)
        hub.attach(asyncio.get_running_loop(), conf().delta_flush_ms / 1000, peers)
        held.callback(hub.detach)
        held.push_async_callback(self._exchanges.close, STREAMS_SECONDS)
        held.callback(hub.shutdown)

    async def stop(self) -> None:
        await self._held.aclose()


async def _drain(runner: Runner, lock: server_lock.ServerLock, seconds: float) -> None:
    """Whatever a run does with its time, the streams and the lock get theirs."""
    try:
        async with asyncio.timeout(seconds + DRAIN_GRACE_SECONDS):
            await runner.drain(seconds)
        await asyncio.to_thread(lock.forget)
    except TimeoutError:
        logger.error("Not every run ended within %s s; the next server takes over", seconds)


def _shared_lock() -> server_lock.SharedLock:
    try:
        return server_lock.SharedLock(worker_name())
    except server_lock.ServerLockedError as error:
        raise StartError(str(error)) from error


def _lock(worker: str) -> server_lock.ServerLock:
    settings = conf()
    try:
        return server_lock.acquire(worker, address=settings.public_url, var_dir=settings.var_dir)
    except server_lock.ServerLockedError as error:
        raise StartError(str(error)) from error


bounds = Bounds(
    limit=django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE, upload=MAX_WRITE_BYTES, uploads=UPLOADS
)
handler = LaneHandler()
exchanges = OpenExchanges(BodyLimit(handler, bounds))
background = Background(handler, exchanges)
application = Lifetime(
    BackPressure(exchanges),
    start=background.start,
    stop=background.stop,
    stopping=exchanges.begin_draining,
    exit_within=conf().drain_seconds + LAST_SECONDS,
)
application.attach_to_daphne()
bound_daphne(bounds)
hasten_daphne()
