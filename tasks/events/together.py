"""Appends of several runs in one transaction: as many statements for all as for one.

Each knows where its task's chain ended when it last stored something. That is looked at, with the
fence, by the statement that moves the heads: where somebody else stored something meanwhile, or owns
the task, it moves fewer than it was given, and all of them have to be stored one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from agent.events import StoredEvent
from tasks import driver
from tasks.events import appending
from tasks.events.appending import Appended, Head, Ready, insert, published, rows_of
from tasks.events.rows import key_of
from tasks.models import Session, Task
from tasks.statements import UpdateEach

COUNTERS = ("steps", "usage", "cost")
"""Fields of the task row that a run's append sets, as they are after it."""
_NEW = {f"new_{name}": name for name in ("last_sequence", "last_hash", "last_event_at", *COUNTERS)}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run appends."""

    task_id: UUID
    session_id: UUID
    run: int
    """The fence."""
    head: Head
    """Of the task's chain, as the run knows it."""
    events: Sequence[StoredEvent]
    counters: Mapping[str, Any]
    """The values of `COUNTERS`."""


class NotTogether(Exception):
    """Somebody else stored something in one of these tasks, or owns it. The transaction holds half
    of the work and has to be rolled back."""


_claim_sequences = UpdateEach(
    Task,
    {"key": "id", "fence": "run", "known": "last_sequence", **_NEW},
    f"SET {', '.join(f'{name} = {new}' for new, name in _NEW.items())} FROM given"
    " WHERE id = key AND run = fence AND last_sequence = known AND status = 'running'"
    " RETURNING id",
)
# Always after the rows of the tasks, as in every append.
_claim_positions = UpdateEach(
    Session,
    {"key": "id", "more": "last_position", "moment": "updated_at"},
    "SET last_position = last_position + more, updated_at = moment FROM given"
    " WHERE id = key RETURNING id, last_position",
)


def append_together(wanted: Sequence[Wanted]) -> list[Appended]:
    """Inside a command: store all of them, or raise NotTogether. The tasks are of different sessions."""
    db = driver.database()
    ready = [_ready(each) for each in wanted]
    moved = _claim_sequences([_moves(*pair) for pair in zip(wanted, ready, strict=True)])
    if len(moved) != len(wanted):
        raise NotTogether
    more = [(each.session_id, len(each.links), each.created_at) for each in ready]
    positions = dict(_claim_positions(more))
    if len(positions) != len(wanted):
        raise NotTogether  # two runs in one session: never by our own doing
    stored = []
    for task_id, session_id, links, created_at in ready:
        before = positions[key_of(db, session_id)] - len(links)
        stored.append(rows_of(str(task_id), str(session_id), links, before, created_at))
    insert(db, [row for rows in stored for row in rows])
    return [published(rows) for rows in stored]


def _ready(wanted: Wanted) -> Ready:
    return appending.ready((wanted.task_id, wanted.session_id), wanted.head, wanted.events)


def _moves(wanted: Wanted, ready: Ready) -> tuple[Any, ...]:
    """In the order of what `_claim_sequences` is given."""
    counters = (wanted.counters[name] for name in COUNTERS)
    return (wanted.task_id, wanted.run, wanted.head.sequence, *ready.fields.values(), *counters)
