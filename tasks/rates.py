"""How often somebody may do something: a bucket of tokens for each, refilled evenly."""

from __future__ import annotations

import math

from tasks.counters import Counters
from tasks.errors import TooMany


def take(counters: Counters, what: str, who: str, per_minute: int) -> None:
    """One more. Raises TooMany when a minute's worth is used up; 0 per minute: no limit."""
    if not per_minute:
        return
    wait = counters.draw(f"{what}:{who}", per_minute, per_minute / 60)
    if wait > 0:
        raise TooMany(
            "rate_limited",
            f"More than {per_minute:,} {what} in a minute. Try again in {math.ceil(wait)} s.",
            retry_after=math.ceil(wait),
        )
