"""How often deltas wake followers."""

from __future__ import annotations

import asyncio

from tasks.hub.topic import Topic

LIVE_RINGS_PER_SECOND = 2000
"""Above so many wake-ups by deltas per second they are gathered."""
LIVE_RINGS_BURST = 200


class Pace:
    """When deltas wake followers: at once while there is little to do, else once per interval.

    A token bucket over all topics. Stored events and the first delta of a block never wait.
    """

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds
        self._credit = float(LIVE_RINGS_BURST)
        self._counted_at = 0.0
        self._waiting: dict[Topic, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def ring(self, topic: Topic, loop: asyncio.AbstractEventLoop | None, *, now: bool) -> None:
        if loop is None or not self._seconds:
            topic.ring()
            return
        if not topic.bells or (topic in self._waiting and not now):
            return
        self._earn(loop.time())
        if now or self._credit > 0:
            self._waiting.pop(topic, None)
            self._spend(topic)
            return
        self._waiting[topic] = None
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._flush)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _flush(self) -> None:
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for topic in waiting:
            self._spend(topic)

    def _spend(self, topic: Topic) -> None:
        self._credit = max(-LIVE_RINGS_BURST, self._credit - len(topic.bells))
        topic.ring()

    def _earn(self, now: float) -> None:
        earned = (now - self._counted_at) * LIVE_RINGS_PER_SECOND
        self._credit = min(LIVE_RINGS_BURST, self._credit + earned)
        self._counted_at = now
