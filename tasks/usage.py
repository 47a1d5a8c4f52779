"""What models used and cost: per task, session, person and day, from rows that are kept beside the
log.

`charge()` belongs into the command that stores the call's event, so the rows say what the log says.
A day is one of the server's time zone. Members of a workspace see what their own tasks used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from operator import add
from typing import Any

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from agent.budget import Gauge
from agent.events import ContextCompacted, ModelCallFinished
from tasks import driver
from tasks.conf import Conf, conf
from tasks.conversions import parameters
from tasks.models import ModelUsage, Task

SUMS = (
    *("calls", "seconds", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens"),
    *("cost", "priced_calls", "estimated_calls"),
)
SCOPES: dict[str, Callable[[Task], Q]] = {
    "session": lambda task: Q(session_id=task.session_id),
    "user": lambda task: Q(user_id=task.created_by_id, day=timezone.localdate()),
    "day": lambda task: Q(day=timezone.localdate()),
}
WHICH = ("steps", "seconds", "tokens", "cost")


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One model call."""

    model: str
    event: ModelCallFinished | ContextCompacted
    seconds: float
    """Working time since the charge before it."""


@dataclass(frozen=True, kw_only=True)
class Total:
    """Sums over some rows."""

    calls: int = 0
    seconds: float = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    """None: no price of any call is known."""
    complete: bool = True
    """Every call has a price."""
    estimated: bool = False
    """Some tokens were counted by us."""

    @property
    def tokens(self) -> int:
        """Fresh work: without the input that providers had cached."""
        return self.input_tokens - self.cached_tokens + self.output_tokens


# ── writing ───────────────────────────────────────────────────────────────────────────────────


def charge(*spent: tuple[Task, Sequence[Charge]]) -> None:
    """Inside a command: add model calls to the rows of today of their tasks, by one statement."""
    sums: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for task, charges in spent:
        for each in charges:
            key = (task.pk, task.session_id, task.created_by_id, each.model[:200])
            added = _added(each)
            before = sums.get(key)
            sums[key] = added if before is None else tuple(map(add, before, added))
    if not sums:
        return
    db = driver.database()
    today = db.ops.adapt_datefield_value(timezone.localdate())
    values = [value for key, added in sums.items() for value in (*key, today, *added)]
    driver.change(db, _ADD.format(", ".join([_ROW] * len(sums))), parameters(db, tuple(values)))


def _added(each: Charge) -> tuple[Any, ...]:
    """In the order of `SUMS`."""
    usage, cost = each.event.usage, each.event.cost
    return (
        1,
        each.seconds,
        usage.input_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        usage.reasoning_tokens,
        0 if cost is None else round(cost, 9),
        int(cost is not None),
        int(usage.estimated),
    )


# One statement, because it runs for every reply; the ORM would need two. Only names are put in.
_TABLE = ModelUsage._meta.db_table
_ROW = f"({', '.join(['%s'] * (5 + len(SUMS)))})"
_ADD = f"""
    INSERT INTO {_TABLE} (task_id, session_id, user_id, model, day, {", ".join(SUMS)})
    VALUES {{}}
    ON CONFLICT (task_id, day, model) DO UPDATE
    SET {", ".join(f"{name} = {_TABLE}.{name} + excluded.{name}" for name in SUMS)}"""  # noqa: S608


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def rows(
    *,
    user_id: int | None = None,
    since: date | None = None,
    until: date | None = None,
) -> QuerySet[ModelUsage]:
    """Those of one person, or of everybody; both days included."""
    wanted = Q()
    if user_id is not None:
        wanted &= Q(user_id=user_id)
    if since is not None:
        wanted &= Q(day__gte=since)
    if until is not None:
        wanted &= Q(day__lte=until)
    return ModelUsage.objects.filter(wanted)


def total(found: QuerySet[ModelUsage]) -> Total:
    return _total(found.order_by().aggregate(**_SUMS))


def by(found: QuerySet[ModelUsage], *keys: str) -> Iterator[tuple[tuple[Any, ...], Total]]:
    """Sums for each combination of the columns `keys`, in descending order of them."""
    groups = found.order_by(*(f"-{key}" for key in keys)).values(*keys).annotate(**_SUMS)
    for group in groups:
        yield tuple(group[key] for key in keys), _total(group)


_SUMS = {f"sum_{name}": Sum(name) for name in SUMS}


def _total(sums: dict[str, Any]) -> Total:
    found = {name: sums[f"sum_{name}"] or 0 for name in SUMS}
    priced, estimated = found.pop("priced_calls"), found.pop("estimated_calls")
    cost = float(found.pop("cost"))
    known = cost if priced else None
    return Total(**found, cost=known, complete=priced == found["calls"], estimated=estimated > 0)


# ── limits ────────────────────────────────────────────────────────────────────────────────────


def limited() -> bool:
    """Whether there is any limit beyond the task's own."""
    return any(_limits(conf()))


def gauges(task: Task) -> list[Gauge]:
    """What is used of the limits of its session, its person's day and everybody's day, now."""
    found: list[Gauge] = []
    for scope, limits in _by_scope(_limits(conf())).items():
        used = total(ModelUsage.objects.filter(SCOPES[scope](task)))
        amounts = {
            "steps": used.calls,
            "seconds": used.seconds,
            "tokens": used.tokens,
            "cost": used.cost or 0,
        }
        found += [
            Gauge(which=which, used=amounts[which], limit=limit, scope=scope)
            for which, limit in limits
        ]
    return found


def _limits(settings: Conf) -> Iterator[tuple[str, str, float]]:
    for scope in SCOPES:
        for which in WHICH:
            limit = getattr(settings, f"max_{scope}_{which}")
            if limit is not None:
                yield scope, which, limit


def _by_scope(limits: Iterable[tuple[str, str, float]]) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    for scope, which, limit in limits:
        found.setdefault(scope, []).append((which, limit))
    return found
