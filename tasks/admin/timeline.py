"""A task's log as pages of entries: the last ones first, older pages by number.

One query per page however long the log is: sequences have no gaps, so a page is a range of them.
Some events before the page are read, too, so that its sentences can name their calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from django.db.models import Count, Q

from agent.events import StoredEvent
from tasks import events
from tasks.admin import words
from tasks.admin.entries import say
from tasks.admin.said import PERSON_TYPES, Context, Said
from tasks.events import Row
from tasks.models import Task, TaskEvent
from tasks.words import later

PAGE = 200
LOOK_BACK = 200
MOST_COUNTED = 5_000
FEWEST_FOLDED = 3
"""So many routine entries in a row become one line."""

KINDS: dict[str, tuple[str, Q]] = {
    "decisions": (
        later("Decisions"),
        Q(type__in=["approval_required", "approval_updated", "approval_resolved", "user_message"]),
    ),
    "tools": (
        later("Tools"),
        Q(type__in=["tool_call_started", "tool_call_finished", "artifact_recorded"]),
    ),
    "model": (
        later("Model"),
        Q(
            type__in=[
                "model_call_finished",
                "model_call_retried",
                "reasoning_message",
                "assistant_message",
                "context_compacted",
            ]
        ),
    ),
    "trouble": (
        later("Trouble"),
        Q(
            type__in=[
                "task_failed",
                "task_cancelled",
                "task_recovered",
                "budget_exceeded",
                "budget_warning",
                "model_call_retried",
            ]
        )
        # Payloads are canonical JSON: inside a string these quotes would be escaped.
        | Q(type="tool_call_finished", payload__contains='"ok":false')
        | Q(type="tool_call_requested", payload__contains='"decision":"deny"'),
    ),
}
"""What the log can be narrowed to."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the log."""

    sequence: int
    type: str
    at: datetime
    elapsed: str
    hash: str
    step: int
    said: Said

    @property
    def person(self) -> bool:
        return self.type in PERSON_TYPES

    @property
    def short_hash(self) -> str:
        return words.short(self.hash)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Neighbours: one entry, or routine ones that are folded together."""

    entries: tuple[Entry, ...]

    @property
    def folded(self) -> bool:
        return len(self.entries) > 1

    @property
    def title(self) -> str:
        """e.g. Events 3 to 9: steps 1 and 2, 3 calls, all allowed"""
        first, last = self.entries[0], self.entries[-1]
        calls = sum(entry.type == "tool_call_finished" for entry in self.entries)
        parts = [_steps({entry.step for entry in self.entries if entry.step})]
        if calls:
            parts.append(words.count(calls, "{n} call, all allowed", "{n} calls, all allowed"))
        told = words.listed(part for part in parts if part) or words.say("routine")
        return words.say("Events {n} to {m}: {told}", n=first.sequence, m=last.sequence, told=told)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One page of a log."""

    groups: tuple[Group, ...]
    show: str
    """A key of KINDS, or empty for everything."""
    first: int
    last: int
    """Sequences on this page; 0 when it is empty."""
    older: int | None
    """`before` of the page with older entries."""
    newer: bool
    """Whether this is not the newest page."""
    counts: dict[str, int]
    """How many events each of KINDS has; empty for a long log, where counting takes its time."""


def timeline(task: Task, *, before: int | None = None, show: str = "") -> Timeline:
    """The last entries of the log, or the last ones before sequence `before`."""
    end = task.last_sequence if before is None else min(before - 1, task.last_sequence)
    if show in KINDS:
        rows, older = _some(task.id, end, KINDS[show][1])
    else:
        show, rows = "", events.page(task.id, max(0, end - PAGE), min(PAGE, max(0, end)))
        older = rows[0].sequence if rows and rows[0].sequence > 1 else None
    entries = [] if not rows else _entries(task, rows)
    return Timeline(
        groups=tuple(_grouped(entries, fold=not show)),
        show=show,
        first=rows[0].sequence if rows else 0,
        last=rows[-1].sequence if rows else 0,
        older=older,
        newer=end < task.last_sequence,
        counts=_counts(task),
    )


def _counts(task: Task) -> dict[str, int]:
    if task.last_sequence > MOST_COUNTED:
        return {}
    counted = {key: Count("pk", filter=which) for key, (_, which) in KINDS.items()}
    found: dict[str, int] = TaskEvent.objects.filter(task=task).aggregate(**counted)
    return found


def _some(task_id: UUID, end: int, which: Q) -> tuple[list[Row], int | None]:
    """The last events of some types, and before which sequence there may be more: a long log is
    looked through piece by piece."""
    start = max(0, end - MOST_COUNTED)
    found = TaskEvent.objects.filter(which, task_id=task_id, sequence__lte=end, sequence__gt=start)
    newest = found.order_by("-sequence").values_list(*Row.__struct_fields__)[: PAGE + 1]
    rows = [events.row_of(values) for values in newest]
    if len(rows) > PAGE:
        return rows[:PAGE][::-1], rows[PAGE - 1].sequence
    return rows[::-1], start + 1 if start else None


def _entries(task: Task, rows: Sequence[Row]) -> list[Entry]:
    context = Context(asker=task.created_by.get_username())
    start = max(0, rows[0].sequence - 1 - LOOK_BACK)
    span = (
        events.page(task.id, start, rows[-1].sequence - start)
        if _sparse(rows)
        else [
            *events.page(task.id, start, rows[0].sequence - 1 - start),
            *rows,
        ]
    )
    wanted = {row.sequence for row in rows}
    return [entry for entry in _told(task, span, context) if entry.sequence in wanted]


def _sparse(rows: Sequence[Row]) -> bool:
    """Whether events between these are missing, and few enough to be read for their context."""
    width = rows[-1].sequence - rows[0].sequence + 1
    return len(rows) < width <= 10 * PAGE


def _told(task: Task, rows: Iterable[Row], context: Context) -> Iterator[Entry]:
    for row in rows:
        event = _event(row)
        if event is None:
            yield _entry(task, row, _unreadable(), context, 0)
            continue
        context.note(row.sequence, row.created_at, event)
        yield _entry(task, row, say(event, context), context, getattr(event, "step", 0))


def _unreadable() -> Said:
    lead, sub = words.say("This event cannot be read"), words.say("Check the chain of this log.")
    return Said(mark="gap", tone="fail", lead=lead, sub=sub)


def _event(row: Row) -> StoredEvent | None:
    """None: somebody changed the stored text. The page must show the rest all the same."""
    try:
        return events.typed(row)
    except msgspec.DecodeError:
        return None


def _entry(task: Task, row: Row, said: Said, context: Context, step: int) -> Entry:
    asked = context.asked.get(said.approval_id) if row.type == "approval_resolved" else None
    since = asked or task.created_at
    passed = max(0.0, (row.created_at - since).total_seconds())
    return Entry(
        sequence=row.sequence,
        type=row.type,
        at=row.created_at,
        elapsed=f"+{words.elapsed(passed)}" if asked else words.elapsed(passed),
        hash=row.hash,
        step=step,
        said=said,
    )


def _grouped(entries: Sequence[Entry], *, fold: bool) -> Iterator[Group]:
    quiet: list[Entry] = []
    for entry in entries:
        if fold and entry.said.routine:
            quiet.append(entry)
            continue
        yield from _settled(quiet)
        quiet = []
        yield Group(entries=(entry,))
    yield from _settled(quiet)


def _steps(numbers: set[int]) -> str:
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    if low == high:
        return words.say("step {n}", n=low)
    if high == low + 1:
        return words.say("steps {n} and {m}", n=low, m=high)
    return words.say("steps {n} to {m}", n=low, m=high)


def _settled(quiet: Sequence[Entry]) -> Iterator[Group]:
    if len(quiet) >= FEWEST_FOLDED:
        yield Group(entries=tuple(quiet))
    else:
        yield from (Group(entries=(entry,)) for entry in quiet)
