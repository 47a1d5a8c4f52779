"""How often deltas wake followers, and how often runs read on."""

from __future__ import annotations

import asyncio

from tasks.hub.topic import Topic

LIVE_RINGS_PER_SECOND = 2000
"""Above so many wake-ups by deltas per second they are gathered."""
LIVE_RINGS_BURST = 200
SHORTEST_BEAT = 0.005


class Pace:
    """When text moves: at once while there is little to do, else in beats, everything together.

    A token bucket over all topics. Stored events and the first delta of a block never wait. A beat
    comes when what the last one spent has been earned, and `seconds` after it at the latest.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._credit = float(LIVE_RINGS_BURST)
        self._counted_at = 0.0
        self._waiting: dict[Topic, None] = {}
        self._beat = asyncio.Event()
        """Set, and replaced, by the next beat."""
        self._timer: asyncio.TimerHandle | None = None
        self._strikes_at = 0.0
        """When the next beat comes, or the last one came."""

    def ring(self, topic: Topic, loop: asyncio.AbstractEventLoop | None, *, now: bool) -> None:
        if loop is None or not self._seconds:
            topic.ring()
            return
        if not topic.bells or (topic in self._waiting and not now):
            return
        if now or self._has_credit(loop):
            self._waiting.pop(topic, None)
            self._spend(topic)
            return
        self._waiting[topic] = None
        self._set(loop)

    async def turn(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Returns at once while there is little to do, else at the next beat: then True."""
        if loop is None or not self._seconds or self._has_credit(loop):
            return False
        self._set(loop)
        await self._beat.wait()
        return True

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._beat.set()

    def _set(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            earned = max(SHORTEST_BEAT, -self._credit / LIVE_RINGS_PER_SECOND)
            # From the last beat on, not from now: what comes after a pause need not wait again.
            now = loop.time()
            self._strikes_at = max(now, self._strikes_at + min(earned, self._seconds))
            self._timer = loop.call_later(self._strikes_at - now, self._strike)

    def _strike(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        beat, self._beat = self._beat, asyncio.Event()
        for topic in waiting:
            self._spend(topic)
        beat.set()

    def _spend(self, topic: Topic) -> None:
        self._credit = max(-LIVE_RINGS_BURST, self._credit - len(topic.bells))
        topic.ring()

    def _has_credit(self, loop: asyncio.AbstractEventLoop) -> bool:
        now = loop.time()
        earned = (now - self._counted_at) * LIVE_RINGS_PER_SECOND
        self._credit = min(LIVE_RINGS_BURST, self._credit + earned)
        self._counted_at = now
        return self._credit > 0
