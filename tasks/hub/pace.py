"""How often deltas wake followers, and how often runs read on."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

from tasks.hub.topic import Topic

BUSY = 0.1
"""Of one core. While the event loop is busy for less of its time, nothing is gathered; above that
beats get longer, because what is gathered costs less."""
BUSY_WITH_FEW = 0.3
"""The same while fewer than `MANY` runs are active: the followers of one run are woken together with
or without a beat, which only makes them wait."""
MANY = 8
SHORTEST_BEAT = 0.004
"""A shorter one would gather nothing."""
PARTS = 4
"""Into so many a beat is divided: the runs of a part read on together, and nobody waits until all the
others have."""
LOOK_SECONDS = 0.05
"""At least between two looks at how busy the loop is."""


class Pace:
    """When text moves: at once while there is little to do, else in beats, much of it together.

    Stored events and the first delta of a block never wait. The time between two beats follows what
    the loop's thread really does, whatever that is, up to `seconds`.
    """

    def __init__(self, seconds: float = 0.0, cpu: Callable[[], float] = time.thread_time) -> None:
        self.runs = 0
        """How many are active; kept by the hub."""
        self._longest = seconds
        self._interval = SHORTEST_BEAT
        self._cpu = cpu
        """Processor time of the calling thread, which is the loop's."""
        self._looked_at = 0.0
        self._used = 0.0
        """The processor time at the last look."""
        self._waiting: dict[Topic, None] = {}
        self._resting: deque[tuple[float, asyncio.Future[None]]] = deque()
        """Until when, and who is told then, as they came."""
        self._alarm: asyncio.TimerHandle | None = None
        """For the first of them."""
        self._timer: asyncio.TimerHandle | None = None
        self._strikes_at = 0.0
        """When the next beat comes, or the last one came."""

    def ring(self, topic: Topic, loop: asyncio.AbstractEventLoop | None, *, now: bool) -> None:
        if not topic.bells or (topic in self._waiting and not now):
            return
        if now or loop is None or not self._gathers(loop):
            self._waiting.pop(topic, None)
            topic.ring()
            return
        self._waiting[topic] = None
        self._set(loop)

    def turn(self, loop: asyncio.AbstractEventLoop | None) -> asyncio.Future[None] | None:
        """None while there is little to do, else what to wait for: a beat, or nearly so long."""
        if loop is None or not self._gathers(loop):
            return None
        rest: asyncio.Future[None] = loop.create_future()
        self._resting.append((loop.time() + self._interval, rest))
        if self._alarm is None:
            self._alarm = loop.call_later(self._interval, self._wake, loop)
        return rest

    def stop(self) -> None:
        """Nobody waits any more."""
        for timer in (self._timer, self._alarm):
            if timer is not None:
                timer.cancel()
        self._timer = self._alarm = None
        self._waiting.clear()
        self._wake_until(math.inf)

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            # From the last beat on, not from now: what comes after a pause need not wait again.
            now = loop.time()
            self._strikes_at = max(now, self._strikes_at + self._interval)
            self._timer = loop.call_later(self._strikes_at - now, self._strike)

    def _strike(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for topic in waiting:
            topic.ring()

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        self._wake_until(now + self._interval / PARTS)
        self._alarm = None
        if self._resting:
            self._alarm = loop.call_later(self._resting[0][0] - now, self._wake, loop)

    def _wake_until(self, until: float) -> None:
        while self._resting and self._resting[0][0] <= until:
            _, rest = self._resting.popleft()
            if not rest.done():
                rest.set_result(None)

    def _gathers(self, loop: asyncio.AbstractEventLoop) -> bool:
        now = loop.time()
        if now - self._looked_at >= LOOK_SECONDS:
            self._look(now)
        return self._interval > SHORTEST_BEAT

    def _look(self, now: float) -> None:
        """Beats as far from each other as it takes for the loop to be so busy and not more."""
        used = self._cpu()
        share = (used - self._used) / (now - self._looked_at)
        self._looked_at, self._used = now, used
        most = BUSY if self.runs >= MANY else BUSY_WITH_FEW
        fitting = self._interval * min(2.0, share / most)
        self._interval = min(max(SHORTEST_BEAT, fitting), self._longest)
