"""When the server starts and stops, on every server.

`start` runs on the server's own event loop before the first request, in a context of its own (what
it starts belongs to the server, never to a request); `stop` runs once, before the server leaves.
uvicorn and others say so by lifespan; Daphne knows none, so its reactor is asked at import. Where
neither happened the first request starts us. Nothing starts on import: commands and tests may
load the application.

On SIGTERM uvicorn waits for open responses *before* it says `lifespan.shutdown`, so its signals
are overheard, too. Under `runserver` with autoreload there is no orderly end: Django ends the
child at once, and the next start takes over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context
from types import FrameType
from typing import Any, NoReturn

from streaming.asgi.wire import App, Receive, Scope, Send
from tasks.leaving import exit_after

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The server must not run; the message is for the person who started it."""


class Lifetime:
    """The outermost application: `start`, requests, `stop`."""

    def __init__(
        self,
        app: App,
        *,
        start: Callable[[], Awaitable[None]],
        stop: Callable[[], Awaitable[None]],
        stopping: Callable[[], None],
        exit_within: float | None = None,
    ) -> None:
        self._app = app
        self._start = start
        self._stop = stop
        self._announce = stopping
        """Called at once, before the server can do anything about its requests."""
        self._exit_within = exit_within
        """Seconds after which a process that was told to stop is ended, whatever hangs."""
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            if not self._started:
                await self.ensure_started()
            await self._app(scope, receive, send)

    async def ensure_started(self) -> None:
        """Returns once `start` is through, whoever began it; raises what it raised."""
        await asyncio.shield(self._begin_start())

    def begin_stop(self) -> asyncio.Task[None] | None:
        """Idempotent; None if nothing was started."""
        if self._stopping is None and self._starting is not None:
            if self._exit_within is not None:
                exit_after(self._exit_within)
            self._announce()
            loop = asyncio.get_running_loop()
            self._stopping = loop.create_task(self._run_stop(self._starting), context=Context())
        return self._stopping

    def attach_to_daphne(self) -> None:
        """At import, while Daphne loads the application and its reactor does not run yet."""
        reactor: Any = sys.modules.get("twisted.internet.reactor")
        if "daphne.server" not in sys.modules or reactor is None:
            return
        reactor.callWhenRunning(self._daphne_starts)
        # Registered before Daphne's own trigger, which cancels all requests: we come first.
        reactor.addSystemEventTrigger("before", "shutdown", self._daphne_stops, reactor)

    def _begin_start(self) -> asyncio.Task[None]:
        if self._starting is None:
            loop = asyncio.get_running_loop()
            self._starting = loop.create_task(self._run_start(), context=Context())
        return self._starting

    async def _run_start(self) -> None:
        await self._start()
        self._started = True

    async def _run_stop(self, starting: asyncio.Task[None]) -> None:
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        try:
            await self._stop()
        except Exception:  # the server stops in any case; the log must say what was left behind
            logger.exception("Could not stop in order")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.ensure_started()
        except StartError as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        self._overhear_signals()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if (stopping := self.begin_stop()) is not None:
            await asyncio.shield(stopping)
        await send({"type": "lifespan.shutdown.complete"})

    def _overhear_signals(self) -> None:
        """Our end begins with the signal; the server's own handler follows at once."""
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            theirs = signal.getsignal(number)
            if not callable(theirs):  # nobody would stop the server: leave it to the system
                continue

            def both(
                number: int,
                frame: FrameType | None,
                theirs: Callable[[int, FrameType | None], Any] = theirs,
            ) -> None:
                loop.call_soon_threadsafe(self.begin_stop)
                theirs(number, frame)

            signal.signal(number, both)

    def _daphne_starts(self) -> None:
        # The reactor is about to run the loop; its first turn is before any request.
        asyncio.get_event_loop().call_soon(self._start_under_daphne)

    def _start_under_daphne(self) -> None:
        self._begin_start().add_done_callback(_leave_unless_started)

    def _daphne_stops(self, reactor: Any) -> Any:
        from twisted.internet.defer import Deferred
        from twisted.internet.tcp import Port

        for reader in reactor.getReaders():
            if isinstance(reader, Port):  # browsers try again later; an error would end them
                reader.stopListening()  # type: ignore[no-untyped-call]
        stopping = self.begin_stop()
        return None if stopping is None else Deferred.fromFuture(stopping)


def _leave_unless_started(starting: asyncio.Task[None]) -> None:
    """Ends the Daphne whose start failed, with status 1. Called by the loop, not by a task."""
    if starting.cancelled():
        return
    error = starting.exception()
    if error is None:
        return
    if not isinstance(error, StartError):
        logger.critical("The server cannot start", exc_info=error)
    _leave(f"pilothouse: {error}")


def _leave(sentence: str) -> NoReturn:
    if threading.current_thread() is threading.main_thread():
        raise SystemExit(sentence)
    # runserver with autoreload serves in a side thread, where SystemExit would end that alone
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
    os._exit(1)
