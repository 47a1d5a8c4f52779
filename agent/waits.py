"""Many short waits of one task: each with a limit, and none that starves the event loop. Pure asyncio.

`asyncio.timeout()` sets up a timer and takes it down again for each wait, which costs more than a
word of text does. Here one timer stays up; when it goes off it looks whether somebody has really
waited too long. And what is there already comes without a wait: timeouts and cancellation would
never reach whoever reads it, so that now and then a turn of the loop is waited for instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

BREATH_SECONDS = 0.01
"""After so long without a wait the event loop gets its turn."""
_WAITED_SECONDS = 0.001
"""What took so long has let the loop have its turn."""

T = TypeVar("T")


class Waits:
    """`async with Waits() as waits`, then `await waits.on(…)`, one at a time, in one task."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._waiter: asyncio.Task[object] | None = None
        self._struck = False
        self._breathe_at = self._loop.time() + BREATH_SECONDS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def on(self, wanted: Awaitable[T], until: float) -> T:
        """What `wanted` gives. Raises TimeoutError at `until`, a time of the loop's clock, also when
        it came without a wait but later than that."""
        began = self._loop.time()
        found = await self._limited(wanted, until)
        now = self._loop.time()
        if now - began >= _WAITED_SECONDS:
            self._breathe_at = now + BREATH_SECONDS
        elif now >= self._breathe_at:
            await asyncio.sleep(0)
            now = self._loop.time()
            self._breathe_at = now + BREATH_SECONDS
        if now >= until:
            raise TimeoutError
        return found

    async def _limited(self, wanted: Awaitable[T], until: float) -> T:
        task = asyncio.current_task()
        assert task is not None
        cancelled = task.cancelling()
        self._until, self._waiter, self._struck = until, task, False
        if self._timer is None or until < self._timer.when():
            self._set(until)
        try:
            return await wanted
        except asyncio.CancelledError as error:
            # Like asyncio.timeout(): a cancellation that somebody else wanted, too, goes on.
            if self._struck and task.cancelling() - 1 <= cancelled:
                raise TimeoutError from error
            raise
        finally:
            self._waiter = None
            if self._struck:
                task.uncancel()

    def _set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._strike)

    def _strike(self) -> None:
        self._timer = None
        if self._waiter is None:
            return  # the next wait sets it anew
        if self._loop.time() < self._until:
            self._set(self._until)
        else:
            self._struck = True
            self._waiter.cancel()
