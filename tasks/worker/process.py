"""A worker process: a runner that is fed by the queue, and its good end.

On SIGTERM it takes no more jobs, lets running tools finish, gives its runs back (each in the
transaction that makes another worker's job of it) and leaves. Whatever hangs, the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack
from typing import Any

from procrastinate import App

from tasks import allocator, dispatch, garbage, server_lock
from tasks.conf import conf
from tasks.hub import hub
from tasks.leaving import exit_after
from tasks.relay.exchange import Exchange
from tasks.runner import Runner, worker_name
from tasks.worker.connector import PatientConnector
from tasks.worker.jobs import UPKEEP, jobs_for
from tasks.worker.sweep import HEARTBEAT_SECONDS, STALLED_SECONDS, sweep_for_ever

logger = logging.getLogger(__name__)

FETCH_SECONDS = 0.5
"""How often to look for jobs nobody rang for: those that waited for their session's lock."""
GRACE_SECONDS = 1.0
LAST_SECONDS = 2.5
"""After draining so much is left to everything else, as for a server."""


class PartBroke(Exception):
    """The worker cannot go on; its log says why."""


async def serve(concurrency: int) -> None:
    """Until SIGTERM or Ctrl-C. Raises PartBroke when it cannot go on, once its runs are given back."""
    stop = _signals()
    allocator.bound()
    garbage.calm()
    async with AsyncExitStack() as held:
        loop = asyncio.get_running_loop()
        lock = await asyncio.to_thread(server_lock.SharedLock, worker_name())
        await held.enter_async_context(server_lock.kept(lock))
        exchange = Exchange()
        await exchange.start()
        held.push_async_callback(exchange.stop)
        hub.attach(loop, conf().delta_flush_ms / 1000, exchange)
        held.callback(hub.detach)
        runner = Runner(worker_name(), jobs=True)
        app = App(connector=PatientConnector())
        app.add_tasks_from(jobs_for(runner), namespace="")
        await held.enter_async_context(app.open_async())
        await runner.start()
        work = [
            loop.create_task(_work(app, dispatch.QUEUE, concurrency), name="runs"),
            loop.create_task(_work(app, UPKEEP, 1), name="upkeep"),
            loop.create_task(sweep_for_ever(app), name="sweep"),
        ]
        logger.info("Worker %s takes up to %d runs.", runner.worker, concurrency)
        told = loop.create_task(stop.wait(), name="stop")
        await asyncio.wait({told, *work}, return_when=asyncio.FIRST_COMPLETED)
        await _stop(runner, [told, *work])
        if not stop.is_set():
            raise PartBroke("A part of this worker ended by itself, see its log. Start it again.")


async def _work(app: App, queue: str, concurrency: int) -> None:
    await app.run_worker_async(
        queues=[queue],
        name=queue,
        concurrency=concurrency,
        fetch_job_polling_interval=FETCH_SECONDS,
        shutdown_graceful_timeout=conf().drain_seconds + GRACE_SECONDS,
        install_signal_handlers=False,
        update_heartbeat_interval=HEARTBEAT_SECONDS,
        stalled_worker_timeout=STALLED_SECONDS,
    )


async def _stop(runner: Runner, work: list[asyncio.Task[Any]]) -> None:
    exit_after(conf().drain_seconds + LAST_SECONDS)
    for task in work:
        task.cancel()  # a queue worker that is cancelled waits for its jobs
    await runner.drain(conf().drain_seconds)
    for outcome in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(outcome, Exception):
            logger.error("A part of the worker broke.", exc_info=outcome)


def _signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
