"""A small application behind the product's own shims: views that stream, block, fail and count.

Loaded by a real server as `tests.support.probe:application`. Its background is a stand-in that
writes what happens to it into the log, so the shims are tested alone.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse

from config import settings as product

if not settings.configured:
    names = (
        "BASE_DIR",
        "DATABASES",
        "INSTALLED_APPS",
        "CHANNEL_LAYERS",
        "LOGGING",
        "PILOTHOUSE",
        "SECRET_KEY",
    )
    settings.configure(
        ROOT_URLCONF=__name__,
        ALLOWED_HOSTS=["*"],
        MIDDLEWARE=[],
        **{name: getattr(product, name) for name in names},
    )
django.setup(set_prefix=False)

from asgiref.sync import async_to_sync, sync_to_async  # noqa: E402 - needs the settings
from django.contrib.auth.models import User  # noqa: E402
from django.urls import path  # noqa: E402

from streaming.asgi.body import MAX_BODY, BodyLimit, Bounds, bound_daphne  # noqa: E402
from streaming.asgi.eager import hasten_daphne  # noqa: E402
from streaming.asgi.exchanges import OpenExchanges  # noqa: E402
from streaming.asgi.lanes import LaneHandler  # noqa: E402
from streaming.asgi.lifetime import Lifetime, StartError  # noqa: E402
from streaming.asgi.pressure import BackPressure, Pressure  # noqa: E402
from tasks import server_lock  # noqa: E402

logger = logging.getLogger("probe")
counts = SimpleNamespace(open=0, ended=0, yielded=0, watched=0, logged=0)
uploads: list[Any] = []
"""Files of forms, as their views had them."""


def health(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"ok": True})


async def stats(request: HttpRequest) -> JsonResponse:
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    return JsonResponse({**vars(counts), "threads": threading.active_count(), "loop": loop})


async def idle(request: HttpRequest) -> StreamingHttpResponse:
    """A stream that asked the database and then has nothing to say."""
    await User.objects.acount()
    return _events(_pieces(b": connected\n\n", forever=True))


async def flood(request: HttpRequest) -> StreamingHttpResponse:
    """More than anybody will read, as fast as it is taken."""
    return _events(_pieces(b"x" * 65_536, forever=False))


async def _pieces(piece: bytes, *, forever: bool) -> AsyncIterator[bytes]:
    counts.open += 1
    try:
        for _ in itertools.count():
            counts.yielded += len(piece)
            yield piece
            if forever:
                await asyncio.Event().wait()
    finally:
        counts.open -= 1
        counts.ended += 1
        logger.info("a stream ended")


async def words(request: HttpRequest) -> StreamingHttpResponse:
    """A hundred small pieces, each in a turn of the loop of its own."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(100):
            yield b"%d " % number
            await asyncio.sleep(0.001)

    return _events(pieces())


async def mixed(request: HttpRequest) -> StreamingHttpResponse:
    """Large and small pieces behind each other, without a turn of the loop between them."""

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(600):
            yield b"%d " % number * (2_000 if number % 3 == 0 else 1)

    return _events(pieces())


def count_watched(reactor: Any) -> None:
    """How often the reactor watches a socket until it may be written to."""
    watch = reactor.addWriter

    def counted(writer: Any) -> None:
        counts.watched += 1
        watch(writer)

    reactor.addWriter = counted


def count_logged(log: Any) -> None:
    """How often Twisted logs something."""

    def counted(_event: dict[str, Any]) -> None:
        counts.logged += 1

    log.addObserver(counted)


def _events(pieces: AsyncIterator[bytes]) -> StreamingHttpResponse:
    return StreamingHttpResponse(pieces, content_type="text/event-stream")


def sync_over_async(request: HttpRequest) -> JsonResponse:
    """Sync view, async inside, the database inside that: all on one lane."""

    async def count() -> tuple[int, int]:
        await asyncio.sleep(0.01)
        return await User.objects.acount(), await sync_to_async(threading.get_ident)()

    users, thread = async_to_sync(count)()
    return JsonResponse({"users": users, "same_thread": thread == threading.get_ident()})


def sleep(request: HttpRequest) -> HttpResponse:
    time.sleep(float(request.GET["seconds"]))
    return HttpResponse("slept")


async def wait(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(float(request.GET["seconds"]))
    return HttpResponse("waited")


async def fail(request: HttpRequest) -> HttpResponse:
    raise ValueError("as intended")


async def length(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"length": len(request.read())})


async def upload(request: HttpRequest) -> HttpResponse:
    uploads.append(request.FILES["file"])
    return HttpResponse("had it")


urlpatterns = [
    path("healthz", health),
    path("stats", stats),
    path("idle", idle),
    path("flood", flood),
    path("words", words),
    path("mixed", mixed),
    path("sync", sync_over_async),
    path("sleep", sleep),
    path("wait", wait),
    path("fail", fail),
    path("length", length),
    path("longer", length),
    path("upload", upload),
]

held: list[server_lock.ServerLock] = []


async def start() -> None:
    worker = f"probe:{os.getpid()}"
    try:
        lock = server_lock.acquire(worker, address="the probe", var_dir=settings.PILOTHOUSE.var_dir)
    except server_lock.ServerLockedError as error:
        raise StartError(str(error)) from error
    held.append(lock)
    logger.info("started after %r", lock.previous_worker)


async def stop() -> None:
    await asyncio.sleep(settings.PILOTHOUSE.drain_seconds)
    logger.info("drained")
    await exchanges.close(1)
    await handler.close(0.5)
    lock = held.pop()
    lock.forget()
    lock.release()
    logger.info("stopped")


handler = LaneHandler()
bounds = Bounds(upload=2 * MAX_BODY, uploads=re.compile(rb"/longer"))
exchanges = OpenExchanges(BodyLimit(handler, bounds))
patience = float(os.environ.get("PROBE_PATIENCE", "30"))
application = Lifetime(
    BackPressure(exchanges, Pressure(patience=patience)),
    start=start,
    stop=stop,
    stopping=exchanges.begin_draining,
    exit_within=float(os.environ.get("PROBE_EXIT", "8")),
)
application.attach_to_daphne()
bound_daphne(bounds)
hasten_daphne()
if "daphne.server" in sys.modules:
    count_watched(sys.modules["twisted.internet.reactor"])
    count_logged(sys.modules["twisted.python.log"])
