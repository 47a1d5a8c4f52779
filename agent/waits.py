"""Many short waits, each with a limit, and none that starves the event loop. Pure asyncio.

`asyncio.timeout()` sets up a timer and takes it down again for each wait, which costs more than a
word of text does. Here all waits of an event loop have one timer, set for the nearest limit that
was ever asked for; when it goes off it looks who has really waited too long. And what is there
already comes without a wait: timeouts and cancellation would never reach whoever reads it, so that
now and then a turn of the loop is waited for instead.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

BREATH_SECONDS = 0.01
"""After so long without a wait the event loop gets its turn."""
SKIPPED = 16
"""Every so many times what is there is waited for all the same."""

T = TypeVar("T")


class Limit:
    """`with Limit(until):` around a wait raises TimeoutError (or `error`) at `until`, a time of the
    loop's clock, like `asyncio.timeout_at`; never at `math.inf`. May be entered again and again, by
    the task that made it."""

    __slots__ = ("_cancelled", "_clock", "_error", "_task", "struck", "until")

    def __init__(self, until: float, error: type[Exception] = TimeoutError) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task
        self._clock = _clock()
        self._error = error
        self._cancelled = 0
        self.until = until
        self.struck = False
        """Whether the limit was reached in the newest block."""

    def __enter__(self) -> Self:
        self._cancelled = self._task.cancelling()
        self.struck = False
        clock = self._clock
        clock.waiting.add(self)
        if self.until < clock.when:
            clock.set(self.until)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clock.waiting.discard(self)
        # Like asyncio.timeout(): a cancellation that somebody else wanted, too, goes on.
        alone = self.struck and self._task.uncancel() <= self._cancelled
        if alone and kind is asyncio.CancelledError:
            raise self._error from error

    def strike(self) -> None:
        self.struck = True
        self._task.cancel()


class _Clock:
    """The one timer of an event loop's limits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.waiting: set[Limit] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.when = math.inf
        """When it goes off."""

    def set(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.when = self.loop.call_at(when, self._strike), when

    def _strike(self) -> None:
        self._timer, self.when = None, math.inf
        now = self.loop.time()
        for limit in [each for each in self.waiting if each.until <= now]:
            self.waiting.discard(limit)
            limit.strike()
        nearest = min((limit.until for limit in self.waiting), default=math.inf)
        if nearest < math.inf:
            self.set(nearest)


class _Here(threading.local):
    """An event loop runs in one thread, one at a time."""

    clock: _Clock | None = None


_here = _Here()


def _clock() -> _Clock:
    loop = asyncio.get_running_loop()
    clock = _here.clock
    if clock is None or clock.loop is not loop:
        clock = _here.clock = _Clock(loop)
    return clock


class Waits:
    """`await waits.on(…)`, one at a time, in one task: never without a turn of the loop for long."""

    def __init__(self, limit: Limit | None = None) -> None:
        """With a limit of the same task it need not make one."""
        self._loop = asyncio.get_running_loop()
        self._limit = limit or Limit(0.0)
        self._skipped = 0
        self._watch(self._loop.time())

    def may_skip(self) -> bool:
        """Whether what is there may be taken without `on()`, which sees to turns and limits. Not for
        long: taking has a cost, too."""
        self._skipped = (self._skipped + 1) % SKIPPED
        return self._skipped > 0

    async def on(self, wanted: Awaitable[T], until: float) -> T:
        """What `wanted` gives. Raises TimeoutError at `until`, a time of the loop's clock, also when
        it came without a wait but later than that."""
        self._limit.until = until
        with self._limit:
            found = await wanted
        now = self._loop.time()
        if now >= self._breathe_at:
            if not self._turned:
                await asyncio.sleep(0)
                now = self._loop.time()
            self._watch(now)
        if now >= until:
            raise TimeoutError
        return found

    def _watch(self, now: float) -> None:
        self._breathe_at = now + BREATH_SECONDS
        self._turned = False
        """Whether the loop has had a turn since, here or while something else was waited for."""
        self._loop.call_soon(self._note_turn)

    def _note_turn(self) -> None:
        self._turned = True
