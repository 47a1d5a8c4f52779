"""What is counted for minutes: how often somebody asked, how often somebody guessed a password.

Brakes against guessing and scripts gone wild, not quotas; those of tokens and money are in the log
(`tasks.usage`). A server that is alone counts in its memory. In scale-out all web processes count
in Redis, so that a brake is no weaker however many there are; while Redis is away each of them
counts for itself, and nobody is turned away because of that.
"""

from __future__ import annotations

import hmac
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast

from tasks.conf import conf

T = TypeVar("T")

logger = logging.getLogger(__name__)

MAX_NAMES = 10_000
"""So many buckets, and as many tallies, are remembered in memory."""
REDIS_SECONDS = 0.5
"""For one try; a count takes two at most."""
AWAY_SECONDS = 5.0
"""After a failure Redis is left alone for so long."""

_DRAW = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local size, refill = tonumber(ARGV[1]), tonumber(ARGV[2])
local held = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(held[1] or size), tonumber(held[2] or now)
left = math.min(size, left + math.max(0, now - at) * refill)
local wait = 0
if left >= 1 then left = left - 1 else wait = (1 - left) / refill end
redis.call('HSET', KEYS[1], 'left', string.format('%.9f', left), 'at', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(size / refill))
return string.format('%.9f', wait)
"""
"""A bucket that nobody drew from for the time it takes to fill is as good as a new one."""
_TALLY = """
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count
"""
_GIVE_BACK = """
if tonumber(redis.call('GET', KEYS[1]) or '0') > 0 then redis.call('DECR', KEYS[1]) end
"""


class Counters(Protocol):
    """For any thread; in scale-out a call waits for Redis, so never on the event loop."""

    def draw(self, bucket: str, size: int, refill: float) -> float:
        """One of `size` tokens, of which `refill` come back in a second. Seconds until there is one
        again; 0 when this one was had."""

    def tally(self, name: str, seconds: float) -> int:
        """One more; how many there are with it. So long after the first of them all are forgotten."""

    def give_back(self, name: str) -> None:
        """One less: it was none after all."""

    def tallies(self, names: Sequence[str]) -> list[int]:
        """How many there are of each."""

    def forget(self, name: str) -> None:
        """None of it."""


class InMemory:
    """This process's own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens left, and when that was; the longest unused first."""
        self._tallies: OrderedDict[str, tuple[int, float]] = OrderedDict()
        """How many, and until when; the oldest first."""

    def draw(self, bucket: str, size: int, refill: float) -> float:
        with self._lock:
            now = self._clock()
            left, then = self._buckets.pop(bucket, (float(size), now))
            left = min(size, left + (now - then) * refill)
            had = left >= 1
            self._buckets[bucket] = (left - 1 if had else left, now)
            _bound(self._buckets)
        return 0 if had else (1 - left) / refill

    def tally(self, name: str, seconds: float) -> int:
        with self._lock:
            now = self._clock()
            count, until = self._tallies.get(name, (0, 0.0))
            if until <= now:
                self._tallies.pop(name, None)
                count, until = 0, now + seconds
            self._tallies[name] = (count + 1, until)
            _bound(self._tallies)
        return count + 1

    def give_back(self, name: str) -> None:
        with self._lock:
            count, until = self._tallies.get(name, (0, 0.0))
            if count:
                self._tallies[name] = (count - 1, until)

    def tallies(self, names: Sequence[str]) -> list[int]:
        with self._lock:
            now = self._clock()
            found = (self._tallies.get(name, (0, 0.0)) for name in names)
            return [count if until > now else 0 for count, until in found]

    def forget(self, name: str) -> None:
        with self._lock:
            self._tallies.pop(name, None)


class InRedis:
    """One for all web processes; `prefix` tells this installation from others in the same Redis."""

    def __init__(self, url: str, prefix: str) -> None:
        import redis  # of the extra `scale`
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._redis = redis.Redis.from_url(
            url,
            socket_connect_timeout=REDIS_SECONDS,
            socket_timeout=REDIS_SECONDS,
            retry=Retry(NoBackoff(), 1),  # a connection that Redis closed meanwhile
        )
        self._trouble = redis.RedisError
        scripts = (_DRAW, _TALLY, _GIVE_BACK)
        self._draw, self._tally, self._give_back = map(self._redis.register_script, scripts)
        self._prefix = prefix
        self._alone = InMemory()
        self._away_until = 0.0

    def draw(self, bucket: str, size: int, refill: float) -> float:
        def shared() -> float:
            return float(cast(bytes, self._draw([self._key("bucket", bucket)], [size, refill])))

        return self._ask(shared, lambda: self._alone.draw(bucket, size, refill))

    def tally(self, name: str, seconds: float) -> int:
        def shared() -> int:
            key, wait = self._key("tally", name), math.ceil(seconds * 1000)
            return int(cast(int, self._tally([key], [wait])))

        return self._ask(shared, lambda: self._alone.tally(name, seconds))

    def give_back(self, name: str) -> None:
        self._ask(
            lambda: self._give_back([self._key("tally", name)]), lambda: self._alone.give_back(name)
        )

    def tallies(self, names: Sequence[str]) -> list[int]:
        def shared() -> list[int]:
            found = cast(list[Any], self._redis.mget([self._key("tally", name) for name in names]))
            return [int(count or 0) for count in found]

        return self._ask(shared, lambda: self._alone.tallies(names))

    def forget(self, name: str) -> None:
        def shared() -> None:
            self._redis.delete(self._key("tally", name))

        self._alone.forget(name)
        self._ask(shared, lambda: None)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}:{kind}:{name}"

    def _ask(self, shared: Callable[[], T], alone: Callable[[], T]) -> T:
        if time.monotonic() < self._away_until:
            return alone()
        try:
            return shared()
        except self._trouble as trouble:
            self._away_until = time.monotonic() + AWAY_SECONDS
            logger.warning("Redis is away, this process counts for itself: %s", trouble)
            return alone()


def _bound(memory: OrderedDict[str, Any]) -> None:
    if len(memory) > MAX_NAMES:
        memory.popitem(last=False)


@cache
def counters() -> Counters:
    """This process's."""
    settings = conf()
    if settings.scale_out:
        # The one thing that all processes of an installation have in common, and no other one has.
        mark = hmac.digest(settings.audit_key, b"counters", "sha256").hex()[:16]
        return InRedis(settings.redis_url, f"pilothouse:{mark}")
    return InMemory()
