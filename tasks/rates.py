"""How often somebody may do something: a bucket of tokens for each, refilled evenly.

The buckets live in this process: a brake against scripts gone wild, not a quota. Quotas of tokens
and money are in the log (`tasks.usage`).
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from tasks.errors import TooMany

MAX_BUCKETS = 10_000


class Rates:
    """Buckets by name. For any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()
        """Tokens left, and when that was; the longest unused first."""

    def take(self, what: str, who: str, per_minute: int) -> None:
        """One more. Raises TooMany when a minute's worth is used up; 0 per minute: no limit."""
        if not per_minute:
            return
        with self._lock:
            wait = self._take((what, who), per_minute)
        if wait > 0:
            raise TooMany(
                "rate_limited",
                f"More than {per_minute:,} {what} in a minute. Try again in {math.ceil(wait)} s.",
                retry_after=math.ceil(wait),
            )

    def _take(self, key: tuple[str, str], per_minute: int) -> float:
        """Seconds until the next one; 0 when this one was had."""
        now, refill = self._clock(), per_minute / 60
        left, then = self._buckets.pop(key, (float(per_minute), now))
        left = min(per_minute, left + (now - then) * refill)
        had = left >= 1
        self._buckets[key] = (left - 1 if had else left, now)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return 0 if had else (1 - left) / refill


rates = Rates()
"""This process's."""
