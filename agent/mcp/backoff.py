"""When a server that fails may be started again: at first at once, then after longer and longer
pauses. Shared by the runs of a process, so that it is not each of them that tries."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

AT_ONCE = 2
"""Failures in a row after which it is still started again without a pause."""
FIRST_SECONDS = 1.0
"""The first pause; each one is twice as long as the one before."""
MAX_SECONDS = 60.0
MAX_KNOWN = 1000
"""Servers whose failures are remembered: the newest ones."""


class _Standing(NamedTuple):
    failures: int
    """In a row."""
    until: float
    """When it may be started again."""


class Backoff:
    """By whatever tells servers apart. On one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Hashable, _Standing] = {}

    def failures(self, server: Hashable) -> int:
        """In a row, until now."""
        standing = self._known.get(server)
        return 0 if standing is None else standing.failures

    def pause(self, server: Hashable) -> float:
        """Seconds until it may be started; 0: now."""
        standing = self._known.get(server)
        return 0 if standing is None else max(0, standing.until - self._clock())

    def failed(self, server: Hashable) -> None:
        """It did not begin, or broke."""
        failures = self.failures(server) + 1
        pauses = failures - AT_ONCE
        seconds = 0 if pauses <= 0 else min(MAX_SECONDS, FIRST_SECONDS * 2.0 ** min(pauses - 1, 16))
        self._known.pop(server, None)  # the newest is the last one
        self._known[server] = _Standing(failures, self._clock() + seconds)
        if len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]

    def worked(self, server: Hashable) -> None:
        """It answered a call."""
        self._known.pop(server, None)
