"""Limits of one task: steps, seconds, tokens, money. Counted over all its runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agent.events import BudgetExceeded, BudgetWarning
from agent.transcript import Spent

WARN_AT = 0.85
"""The share of a limit at which people are told."""

_WORDS = {
    "steps": "It took {used:g} of {limit:g} steps and had not finished.",
    "seconds": "It worked for {used:.0f} of {limit:g} seconds and had not finished.",
    "tokens": "It used {used:g} of {limit:g} tokens and had not finished.",
    "cost": "It cost {used:.4f} of {limit:g} and had not finished.",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """None means unlimited; steps and seconds are always limited."""

    max_steps: int = 12
    max_seconds: float = 300
    max_tokens: int | None = None
    max_cost: float | None = None

    def as_payload(self) -> dict[str, Any]:
        """For `task_started`."""
        return {
            "steps": self.max_steps,
            "seconds": self.max_seconds,
            "tokens": self.max_tokens,
            "cost": self.max_cost,
        }


def exceeded(which: str, used: float, limit: float) -> BudgetExceeded:
    message = _WORDS[which].format(used=used, limit=limit)
    return BudgetExceeded(which=which, used=used, limit=limit, message=message)


def used_up(limits: Limits, spent: Spent) -> BudgetExceeded | None:
    """The first limit that leaves no room for another model call."""
    for which, used, limit in _gauges(limits, spent):
        if used >= limit:
            return exceeded(which, used, limit)
    return None


def warnings(limits: Limits, spent: Spent, warned: set[str], step: int) -> Iterator[BudgetWarning]:
    """One warning per limit and task."""
    for which, used, limit in _gauges(limits, spent):
        if limit * WARN_AT <= used < limit and which not in warned:
            yield BudgetWarning(step=step, which=which, used=used, limit=limit)


def _gauges(limits: Limits, spent: Spent) -> Iterator[tuple[str, float, float]]:
    yield "steps", spent.steps, limits.max_steps
    yield "seconds", spent.seconds, limits.max_seconds
    if limits.max_tokens is not None:
        yield "tokens", spent.tokens, limits.max_tokens
    if limits.max_cost is not None and spent.has_cost:
        yield "cost", spent.cost, limits.max_cost
