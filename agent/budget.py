"""Limits: steps, seconds, tokens, money, of a task, a session, a person's day and everybody's day.

A task's own limits are counted over all its runs, from its log. The others are read by whoever has
a database and handed in as gauges before each step. Cached input is no fresh work.

Near a limit people are told (`budget_warning`). At a limit the task ends (`budget_exceeded`), or,
where the server's settings say so, a person is asked to go on with as much again; that goes for a
task and a session, while the limits of a person and of a day are the server's last word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from agent.events import ApprovalRequired, BudgetExceeded, BudgetWarning
from agent.transcript import ABOUT_A_LIMIT, Spent

WARN_AT = 0.85
"""The share of a limit at which people are told."""
ASKABLE = frozenset({"task", "session"})
QUESTION = "more_budget"
"""Stands where a question about a call has the tool's name."""

_USED = {
    "steps": "{used:g} of {limit:g} steps",
    "seconds": "{used:.0f} of {limit:g} seconds of work",
    "tokens": "{used:g} of {limit:g} tokens",
    "cost": "{used:.4f} of {limit:g} in cost",
}
_SCOPES = {
    "task": "It used {} and had not finished.",
    "session": "The tasks of this session used {}.",
    "user": "Your tasks of today used {}.",
    "day": "The tasks of everybody used {} today.",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Of one task. None means unlimited; steps and seconds are always limited."""

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


@dataclass(frozen=True, kw_only=True)
class Gauge:
    """One limit and how much of it is used."""

    which: str
    used: float
    limit: float
    scope: str = "task"
    granted: float = 0
    """What people added."""

    @property
    def most(self) -> float:
        return self.limit + self.granted

    @property
    def used_up(self) -> bool:
        """It leaves no room for another model call."""
        return self.used >= self.most

    @property
    def nearly_used_up(self) -> bool:
        """Or quite."""
        return self.used >= (self.limit + self.granted) * WARN_AT

    @property
    def sentence(self) -> str:
        used = _USED[self.which].format(used=self.used, limit=self.most)
        return _SCOPES[self.scope].format(used)


def gauges(limits: Limits, spent: Spent) -> list[Gauge]:
    """Those of the task itself."""
    found = [
        Gauge(which="steps", used=spent.steps, limit=limits.max_steps),
        Gauge(which="seconds", used=spent.seconds, limit=limits.max_seconds),
    ]
    if limits.max_tokens is not None:
        found.append(Gauge(which="tokens", used=spent.tokens, limit=limits.max_tokens))
    if limits.max_cost is not None and spent.has_cost:
        found.append(Gauge(which="cost", used=spent.cost, limit=limits.max_cost))
    return found


def with_grants(found: Iterable[Gauge], granted: dict[tuple[str, str], float]) -> list[Gauge]:
    if not granted:
        return list(found)
    return [replace(each, granted=granted.get((each.scope, each.which), 0)) for each in found]


def exceeded(gauge: Gauge) -> BudgetExceeded:
    return BudgetExceeded(
        which=gauge.which,
        scope=gauge.scope,
        used=gauge.used,
        limit=gauge.most,
        message=gauge.sentence,
    )


def question(gauge: Gauge, step: int) -> ApprovalRequired:
    """Go on with as much again?"""
    more = int(gauge.limit) if gauge.which in ("steps", "tokens") else gauge.limit
    return ApprovalRequired(
        step=step,
        kind="limit",
        tool_call_id=f"{ABOUT_A_LIMIT}{gauge.scope}:{gauge.which}:{step}",
        name=QUESTION,
        arguments={
            "scope": gauge.scope,
            "which": gauge.which,
            "used": gauge.used,
            "limit": gauge.most,
            "more": more,
        },
        capability="",
        risk="low",
        reason=f"{gauge.sentence} Go on with {more:g} more?",
        rule="PILOTHOUSE_BUDGET_ASKS: a person may add as much again",
        diff="",
        options=[],
        arguments_digest="",
        target_digest="",
    )


def refused(ask: ApprovalRequired) -> BudgetExceeded:
    """The end that a no to `question` brings."""
    told = ask.arguments
    which, scope = str(told["which"]), str(told["scope"])
    return exceeded(Gauge(which=which, scope=scope, used=told["used"], limit=told["limit"]))


def warnings(
    found: Iterable[Gauge], warned: set[tuple[str, str]], step: int
) -> Iterator[BudgetWarning]:
    """One for each limit that is nearly used up, and for a task only once."""
    for gauge in found:
        if (gauge.scope, gauge.which) not in warned:
            yield BudgetWarning(
                step=step,
                which=gauge.which,
                scope=gauge.scope,
                used=gauge.used,
                limit=gauge.most,
            )
