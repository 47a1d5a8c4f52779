"""What came of a call in a thread, told to the event loop that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(threads: Executor, call: Callable[[], T]) -> T:
    """What a call gives in one of these threads. It is not stopped with whoever waits for it."""
    loop = asyncio.get_running_loop()
    landed: asyncio.Future[T] = loop.create_future()
    threads.submit(land, call, landed, loop)
    return await landed


def land(call: Callable[[], T], landed: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    """In the thread: call, and let the loop set the future. Whoever stopped waiting hears nothing.

    Two futures that follow each other, as asyncio offers it, take five times as many calls.
    """
    try:
        told = partial(_land, landed, call())
    except (StopIteration, SystemExit) as error:
        # The one cannot pass through a future, the other would end the server.
        instead = RuntimeError(f"{type(error).__name__} in a thread")
        instead.__cause__ = error
        told = partial(_crash, landed, instead)
    except BaseException as error:  # noqa: BLE001 - the boundary of the thread: nothing is lost
        told = partial(_crash, landed, error)
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(told)
    del landed, told  # an error knows the frames that it came through: this must not know it


def _land(landed: asyncio.Future[T], outcome: T) -> None:
    if not landed.done():
        landed.set_result(outcome)


def _crash(landed: asyncio.Future[Any], error: BaseException) -> None:
    if not landed.done():
        landed.set_exception(error)
