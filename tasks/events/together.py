"""Appends of several runs in one transaction: as many statements for all as for one.

Each knows where its task's chain, and its session's numbering, ended when it last stored something.
That is looked at, with the fence, by the statements that move both: where somebody else stored
something meanwhile, or owns the task, they move fewer than they were given, and all of them have to
be stored one by one. So no statement returns rows: each row of an answer is a step in which other
threads get the interpreter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from agent.events import StoredEvent
from tasks import driver
from tasks.events import appending
from tasks.events.appending import Appended, Head, Ready, insert, numbers, publish, rows_of
from tasks.models import Session, Task
from tasks.statements import UpdateEach

COUNTERS = ("steps", "usage", "cost")
"""Fields of the task row that a run's append sets, as they are after it."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run appends."""

    task_id: UUID
    session_id: UUID
    run: int
    """The fence."""
    head: Head
    """Of the task's chain, as the run knows it."""
    events: Sequence[StoredEvent]
    fields: Mapping[str, Any]
    """Of the task's row, as they are after it: those that the statement sets."""


class NotTogether(Exception):
    """Somebody else stored something in one of these tasks, or owns it. The transaction holds half
    of the work and has to be rolled back."""


class Heads:
    """Moves the heads of running tasks' logs by one statement, with further fields of their rows."""

    def __init__(self, *fields: str) -> None:
        self._fields = fields
        new = {f"new_{name}": name for name in (*_OF_THE_LOG, *fields)}
        self._move = UpdateEach(
            Task,
            {"key": "id", "fence": "run", "known": "last_sequence", **new},
            ", ".join(f"{name} = {value}" for value, name in new.items()),
            "id = key AND run = fence AND last_sequence = known AND status = 'running'",
        )

    def __call__(self, pairs: Sequence[tuple[Wanted, Ready]]) -> int:
        """How many were where their runs know them to be."""
        return self._move([self._values(*pair) for pair in pairs])

    def _values(self, wanted: Wanted, ready: Ready) -> tuple[Any, ...]:
        fields = (wanted.fields[name] for name in self._fields)
        return (wanted.task_id, wanted.run, wanted.head.sequence, *ready.fields.values(), *fields)


_OF_THE_LOG = ("last_sequence", "last_hash", "last_event_at")
"""In the order of `Ready.fields`."""
_step = Heads(*COUNTERS)
# Always after the rows of the tasks, as in every append.
_move_positions = UpdateEach(
    Session,
    {"key": "id", "known": "last_position", "new": "last_position", "moment": "updated_at"},
    "last_position = new, updated_at = moment",
    "id = key AND last_position = known",
)


def append_together(wanted: Sequence[Wanted], move_heads: Heads = _step) -> list[Appended]:
    """Inside a command: store all of them, or raise NotTogether. The tasks are of different sessions."""
    pairs = [(each, _ready(each)) for each in wanted]
    if move_heads(pairs) != len(wanted):
        raise NotTogether
    if _move_positions([_positions(*pair) for pair in pairs]) != len(wanted):
        raise NotTogether
    stored = [rows_of(events, each.head.position) for each, events in pairs]
    insert(driver.database(), *stored)
    publish(*stored)
    return [numbers(rows) for rows in stored]


def _ready(wanted: Wanted) -> Ready:
    return appending.ready((wanted.task_id, wanted.session_id), wanted.head, wanted.events)


def _positions(wanted: Wanted, ready: Ready) -> tuple[Any, ...]:
    """In the order of what `_move_positions` is given."""
    before = wanted.head.position
    return (wanted.session_id, before, before + len(ready.links), ready.created_at)
