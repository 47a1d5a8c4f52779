"""Rendering off the event loop, once for each text."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar

from tasks.render.whole import render

SHELF_CHARS = 4 * 1024 * 1024
"""HTML that is kept, so that the next reader costs nothing."""
THREADS = 2

P = ParamSpec("P")
T = TypeVar("T")


class Shelf:
    """Rendered texts, the least recently wanted go first. Any thread."""

    def __init__(self, chars: int) -> None:
        self._chars = chars
        self._held = 0
        self._done: OrderedDict[bytes, str] = OrderedDict()
        self._jobs: dict[bytes, Future[str]] = {}
        self._lock = threading.Lock()

    def find(self, text: str) -> str | Future[str]:
        """The HTML, or the one job that makes it."""
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            if (found := self._done.get(key)) is not None:
                self._done.move_to_end(key)
                return found
            if (job := self._jobs.get(key)) is None:
                job = self._jobs[key] = submit(self._make, key, text)
            return job

    def _make(self, key: bytes, text: str) -> str:
        made = render(text)
        with self._lock:
            self._done[key] = made
            self._held += len(made)
            del self._jobs[key]
            while self._held > self._chars:
                self._held -= len(self._done.popitem(last=False)[1])
        return made


async def rendered(text: str) -> str:
    """`render` for the event loop."""
    found = shelf.find(text)
    if isinstance(found, str):
        return found
    # One reader's leaving must not take the job from the others.
    return await asyncio.shield(asyncio.wrap_future(found))


def rendered_now(text: str) -> str:
    """`rendered` for code that is in a thread already."""
    found = shelf.find(text)
    return found if isinstance(found, str) else found.result()


def submit(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run it in one of the rendering threads."""
    return _pool().submit(function, *args, **kwargs)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="render")


shelf = Shelf(SHELF_CHARS)
