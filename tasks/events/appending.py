"""Appending, inside a command of `tasks.writer`: numbers, the hash chain, the rows, then the bell.

**The chain**, so that an outsider can check it. For each event of a task, in order of `sequence`:

    record = ["TASK ID",SEQUENCE,"TYPE","CREATED AT",PAYLOAD]
    hash   = hex(HMAC-SHA256(key = PILOTHOUSE_AUDIT_KEY, message = previous hash + record))

`record` is UTF-8 without spaces: the task's id in lower case with hyphens, the time as
`2026-01-31T09:30:00.123Z` (UTC, always three digits), and the payload's text exactly as stored (`tasks.canonical`).
`previous hash` is the hex text of the event before; 64 zeros for the first. `hash` is lower case.
"""

from __future__ import annotations

import hmac
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from agent.events import StoredEvent
from tasks import driver
from tasks.canonical import canonical_json
from tasks.conf import conf
from tasks.conversions import moment
from tasks.events.rows import Row, aware, key_of, text_of
from tasks.events.wire import frame, wire_time
from tasks.hub import hub
from tasks.models import Task, TaskEvent
from tasks.statements import update

FIRST_PREVIOUS_HASH = "0" * 64
OWN_FIELDS = frozenset(
    {"status", "session", "first_position", "last_sequence", "last_hash", "last_event_at"}
)
"""Of the task row; callers cannot set them through `changes`."""


class FenceLost(Exception):
    """Another run owns the task, or it is not running any more: stop at once and write nothing."""

    def __init__(self, task_id: str, run: int) -> None:
        super().__init__(f"Run {run} of task {task_id} no longer owns it.")
        self.task_id = task_id
        self.run = run


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers and the time that an append was given."""

    session_id: str
    first_sequence: int
    last_sequence: int
    first_position: int
    last_position: int
    created_at: datetime
    """The same for all its events."""


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task's chain ended before the append."""

    task_key: Any
    """The task's id as this database keeps it."""
    session_key: Any
    sequence: int
    hash: str
    time: datetime | None


# SQL by hand where it runs for every event: the ORM has no UPDATE … RETURNING and costs four times more.
_CLAIM_SEQUENCES = """
    UPDATE tasks_task SET last_sequence = last_sequence + %s WHERE id = %s
    RETURNING last_sequence, last_hash, last_event_at, session_id"""
_CLAIM_UNDER_FENCE = _CLAIM_SEQUENCES.replace("RETURNING", "AND run = %s AND status = %s RETURNING")
_CLAIM_POSITIONS = """
    UPDATE tasks_session SET last_position = last_position + %s, updated_at = %s WHERE id = %s
    RETURNING last_position"""
_INSERT = """
    INSERT INTO tasks_taskevent
        (task_id, session_id, sequence, position, type, payload, created_at, hash)
    VALUES """
_INSERT_ROW = "(%s, %s, %s, %s, %s, %s, %s, %s)"
_RUNNING = str(Task.Status.RUNNING)
_MOVE_HEAD = "UPDATE tasks_task SET last_hash = %s, last_event_at = %s WHERE id = %s"


def append(
    task_id: str | uuid.UUID,
    events: Sequence[StoredEvent],
    *,
    fence: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Appended:
    """Store `events` and set fields of the task row together. Call it inside a command.

    With a `fence`, only while that run owns the task and the task is running; else `FenceLost`.
    `changes` are fields of `Task` (expressions allowed), but never its status: that moves through
    `tasks.lifecycle.move()`, at the end of a run after the append. Raises `Task.DoesNotExist`.
    """
    db = driver.database()
    _check_call(db, events, changes or {})
    head = _claim_sequences(db, key_of(db, task_id), len(events), fence)
    created_at = _now(head.time)
    time = moment(db, created_at)
    last_position = _claim_positions(db, head, len(events), time)
    rows = _chained(head, events, last_position - len(events), created_at)
    _insert(db, head, rows, time)
    _move_head(db, head, rows, time, changes or {})
    return _published(rows)


def begin(task: Task, event: StoredEvent) -> Appended:
    """Store the first event of a task that is about to be inserted, in the same command.

    Sets the fields of the new row that belong to the log.
    """
    db = driver.database()
    _check_call(db, [event], {})
    head = _Head(
        task_key=key_of(db, task.pk),
        session_key=key_of(db, task.session_id),
        sequence=0,
        hash="",
        time=None,
    )
    created_at = _now(None)
    time = moment(db, created_at)
    position = _claim_positions(db, head, 1, time)
    rows = _chained(head, [event], position - 1, created_at)
    _insert(db, head, rows, time)
    task.last_sequence, task.last_hash, task.last_event_at = 1, rows[0].hash, created_at
    task.first_position = position
    return _published(rows)


def link(previous_hash: str, row: Row) -> str:
    """The row's hash; the module's docstring defines it."""
    time = wire_time(row.created_at)
    return _hash(previous_hash, row.task_id, row.sequence, row.type, time, row.payload)


def _hash(previous: str, task_id: str, sequence: int, kind: str, time: str, payload: str) -> str:
    record = f'["{task_id}",{sequence},"{kind}","{time}",{payload}]'
    message = (previous or FIRST_PREVIOUS_HASH) + record
    return hmac.digest(conf().audit_key, message.encode(), "sha256").hex()


def _check_call(
    db: BaseDatabaseWrapper, events: Sequence[StoredEvent], changes: Mapping[str, Any]
) -> None:
    if not db.in_atomic_block:
        raise RuntimeError("append() belongs inside a command: submit one to tasks.writer.")
    if not events:
        raise ValueError("append() needs at least one event.")
    if forbidden := sorted(OWN_FIELDS & changes.keys()):
        raise ValueError(f"append() does not change {', '.join(forbidden)} on request.")


def _claim_sequences(db: BaseDatabaseWrapper, key: Any, count: int, fence: int | None) -> _Head:
    """Take the next numbers. From here on the row is locked: appends to a task queue up here."""
    if fence is None:
        found = driver.rows(db, _CLAIM_SEQUENCES, [count, key])
    else:
        found = driver.rows(db, _CLAIM_UNDER_FENCE, [count, key, fence, _RUNNING])
    if not found and fence is not None:
        raise FenceLost(text_of(key), fence)
    if not found:
        raise Task.DoesNotExist(f"There is no task {text_of(key)}.")
    last_sequence, last_hash, last_event_at, session_key = found[0]
    return _Head(
        task_key=key,
        session_key=session_key,
        sequence=last_sequence - count,
        hash=last_hash,
        time=aware(last_event_at),
    )


def _claim_positions(db: BaseDatabaseWrapper, head: _Head, count: int, time: Any) -> int:
    """Always after the task row, so that two appends never wait for each other crosswise."""
    ((last,),) = driver.rows(db, _CLAIM_POSITIONS, [count, time, head.session_key])
    return int(last)


def _now(earlier: datetime | None) -> datetime:
    """In whole milliseconds, and not before the task's last event even if the clock was set back."""
    now = timezone.now()
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    return now if earlier is None else max(now, earlier)


def _chained(
    head: _Head, events: Sequence[StoredEvent], position: int, created_at: datetime
) -> list[Row]:
    task_id, session_id, time = (
        text_of(head.task_key),
        text_of(head.session_key),
        wire_time(created_at),
    )
    rows, link_before = [], head.hash
    for number, event in enumerate(events, start=1):
        sequence, kind, payload = head.sequence + number, event.type, canonical_json(_fields(event))
        link_before = _hash(link_before, task_id, sequence, kind, time, payload)
        row = Row(
            task_id=task_id,
            session_id=session_id,
            sequence=sequence,
            position=position + number,
            type=kind,
            payload=payload,
            created_at=created_at,
            hash=link_before,
        )
        rows.append(row)
    return rows


def _fields(event: StoredEvent) -> dict[str, Any]:
    """The payload: what applies, without the type."""
    fields = msgspec.structs.asdict(event)
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def _insert(db: BaseDatabaseWrapper, head: _Head, rows: Sequence[Row], time: Any) -> None:
    """One statement for all rows: `executemany` costs a round trip more on PostgreSQL."""
    values: list[Any] = []
    for row in rows:
        values += (head.task_key, head.session_key, row.sequence, row.position)
        values += (row.type, row.payload, time, row.hash)
    driver.change(db, _INSERT + ", ".join([_INSERT_ROW] * len(rows)), values)


def _move_head(
    db: BaseDatabaseWrapper,
    head: _Head,
    rows: Sequence[Row],
    time: Any,
    changes: Mapping[str, Any],
) -> None:
    """The fence held when the numbers were taken, and the row is locked since then."""
    first, last = rows[0], rows[-1]
    place = {"first_position": first.position} if first.sequence == 1 else {}
    if changes or place:
        end = {"last_hash": last.hash, "last_event_at": last.created_at}
        update(Task, {**end, **place, **changes}, "id = %s", head.task_key)
    else:
        driver.change(db, _MOVE_HEAD, [last.hash, time, head.task_key])


def _published(rows: Sequence[Row]) -> Appended:
    """Their numbers; followers hear of them after COMMIT."""
    # A hub that fails costs followers a moment, not the command its success.
    transaction.on_commit(partial(_publish, rows), robust=True)
    return Appended(
        session_id=rows[0].session_id,
        first_sequence=rows[0].sequence,
        last_sequence=rows[-1].sequence,
        first_position=rows[0].position,
        last_position=rows[-1].position,
        created_at=rows[0].created_at,
    )


def _publish(rows: Sequence[Row]) -> None:
    """After COMMIT: who begins to listen later than that reads the rows itself."""
    if hub.wants(rows[0].task_id, rows[0].session_id):
        hub.committed_from_thread([frame(row) for row in rows])


def forget(task_id: str | uuid.UUID) -> None:
    """Inside a command of `tasks.pruning`, which leaves a tombstone."""
    TaskEvent.objects.filter(task_id=task_id).delete()
