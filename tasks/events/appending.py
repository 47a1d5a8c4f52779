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
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from agent.events import StoredEvent
from tasks import driver
from tasks.canonical import canonical_json
from tasks.conf import conf
from tasks.conversions import moment
from tasks.events.rows import Row, aware, key_of, text_of, uuid_of
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


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task's chain ends."""

    sequence: int = 0
    hash: str = ""
    time: datetime | None = None
    """Of its newest event."""
    position: int = 0
    """Of its newest event in the session, if that is known; others may have come behind it."""


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers and the time that an append was given."""

    session_id: str
    first_sequence: int
    first_position: int
    last_position: int
    created_at: datetime
    """The same for all its events."""
    head: Head

    @property
    def last_sequence(self) -> int:
        return self.head.sequence


class Link(NamedTuple):
    """An event as the chain holds it."""

    sequence: int
    type: str
    payload: str
    hash: str


class Ready(NamedTuple):
    """Events with their numbers in the task's chain, for whoever moves its head himself."""

    task_id: uuid.UUID
    session_id: uuid.UUID
    links: Sequence[Link]
    created_at: datetime

    @property
    def fields(self) -> dict[str, Any]:
        """What the task's row says from here on. Only where it still said what these were linked to."""
        last = self.links[-1]
        return {
            "last_sequence": last.sequence,
            "last_hash": last.hash,
            "last_event_at": self.created_at,
        }


class _Claimed(NamedTuple):
    """What an append found when it took its numbers."""

    task_key: Any
    """The task's id as this database keeps it."""
    session_key: Any
    head: Head
    """Before the append."""


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
    claimed = _claim_sequences(db, key_of(db, task_id), len(events), fence)
    created_at = now(claimed.head.time)
    time = moment(db, created_at)
    last_position = _claim_positions(db, claimed.session_key, len(events), time)
    rows = rows_of(_ready(claimed, events, created_at), last_position - len(events))
    insert(db, rows)
    _move_head(db, claimed.task_key, rows, time, changes or {})
    publish(rows)
    return numbers(rows)


def begin(task: Task, events: Sequence[StoredEvent], *, fresh: bool = False) -> Appended:
    """Store the first events of a task that is about to be inserted, in the same command.

    Sets the fields of the new row that belong to the log. `fresh`: the session was inserted just
    now, with these as its first events.
    """
    db, count = driver.database(), len(events)
    _check_call(db, events, {})
    claimed = _Claimed(task.pk, task.session_id, Head())
    created_at = now(None)
    if fresh:
        last_position = count
    else:
        key = key_of(db, task.session_id)
        last_position = _claim_positions(db, key, count, moment(db, created_at))
    rows = rows_of(_ready(claimed, events, created_at), last_position - count)
    insert(db, rows)
    first, last = rows[0], rows[-1]
    task.last_sequence, task.last_hash, task.last_event_at = count, last.hash, created_at
    task.first_position = first.position
    publish(rows)
    return numbers(rows)


def ready(task: tuple[uuid.UUID, uuid.UUID], head: Head, events: Sequence[StoredEvent]) -> Ready:
    """The events behind this head, not stored yet. `task`: its id and its session's."""
    created_at = now(head.time)
    return Ready(*task, linked(text_of(task[0]), head, events, created_at), created_at)


def store(ready: Ready) -> Appended:
    """Inside the command that has moved the task's head to them."""
    db, count = driver.database(), len(ready.links)
    time = moment(db, ready.created_at)
    last_position = _claim_positions(db, key_of(db, ready.session_id), count, time)
    rows = rows_of(ready, last_position - count)
    insert(db, rows)
    if rows[0].sequence == 1:
        update(Task, {"first_position": rows[0].position}, "id = %s", ready.task_id)
    publish(rows)
    return numbers(rows)


def link(previous_hash: str, row: Row) -> str:
    """The row's hash; the module's docstring defines it."""
    record = _record(row.task_id, row.sequence, row.type, wire_time(row.created_at), row.payload)
    return _hash(conf().audit_key, previous_hash, record)


def _record(task_id: str, sequence: int, kind: str, time: str, payload: str) -> str:
    return f'["{task_id}",{sequence},"{kind}","{time}",{payload}]'


def _hash(key: bytes, previous: str, record: str) -> str:
    found = _keyed(key).copy()
    found.update(((previous or FIRST_PREVIOUS_HASH) + record).encode())
    return found.hexdigest()


@lru_cache(maxsize=8)
def _keyed(key: bytes) -> hmac.HMAC:
    """`hmac.digest()` takes the key in anew, and gives the interpreter up however short the message
    is, which a busy event loop makes a wait of a tenth of a millisecond."""
    return hmac.new(key, digestmod="sha256")


def _check_call(
    db: BaseDatabaseWrapper, events: Sequence[StoredEvent], changes: Mapping[str, Any]
) -> None:
    if not db.in_atomic_block:
        raise RuntimeError("append() belongs inside a command: submit one to tasks.writer.")
    if not events:
        raise ValueError("append() needs at least one event.")
    if forbidden := sorted(OWN_FIELDS & changes.keys()):
        raise ValueError(f"append() does not change {', '.join(forbidden)} on request.")


def _claim_sequences(db: BaseDatabaseWrapper, key: Any, count: int, fence: int | None) -> _Claimed:
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
    before = Head(sequence=last_sequence - count, hash=last_hash, time=aware(last_event_at))
    return _Claimed(key, session_key, before)


def _claim_positions(db: BaseDatabaseWrapper, session_key: Any, count: int, time: Any) -> int:
    """Always after the task row, so that two appends never wait for each other crosswise."""
    ((last,),) = driver.rows(db, _CLAIM_POSITIONS, [count, time, session_key])
    return int(last)


def now(earlier: datetime | None) -> datetime:
    """In whole milliseconds, and not before the task's last event even if the clock was set back."""
    found = datetime.now(UTC)
    found = found.replace(microsecond=found.microsecond // 1000 * 1000)
    return found if earlier is None else max(found, earlier)


def _ready(claimed: _Claimed, events: Sequence[StoredEvent], created_at: datetime) -> Ready:
    task_id, session_id = uuid_of(claimed.task_key), uuid_of(claimed.session_key)
    links = linked(text_of(task_id), claimed.head, events, created_at)
    return Ready(task_id, session_id, links, created_at)


def linked(
    task_id: str, head: Head, events: Sequence[StoredEvent], created_at: datetime
) -> list[Link]:
    """The events behind this head of the task's chain."""
    audit_key, time = conf().audit_key, wire_time(created_at)
    links, link_before = [], head.hash
    for sequence, event in enumerate(events, start=head.sequence + 1):
        kind, payload = event.type, canonical_json(_fields(event))
        record = _record(task_id, sequence, kind, time, payload)
        link_before = _hash(audit_key, link_before, record)
        links.append(Link(sequence, kind, payload, link_before))
    return links


def rows_of(ready: Ready, position: int) -> list[Row]:
    """The events as rows; `position` is the session's newest before them."""
    task_id, session_id = text_of(ready.task_id), text_of(ready.session_id)
    return [
        Row(
            task_id=task_id,
            session_id=session_id,
            sequence=link.sequence,
            position=number,
            type=link.type,
            payload=link.payload,
            created_at=ready.created_at,
            hash=link.hash,
        )
        for number, link in enumerate(ready.links, start=position + 1)
    ]


def _fields(event: StoredEvent) -> dict[str, Any]:
    """The payload: what applies, without the type."""
    fields = msgspec.structs.asdict(event)
    return {name: value for name, value in fields.items() if value is not msgspec.UNSET}


def insert(db: BaseDatabaseWrapper, *appends: Sequence[Row]) -> None:
    """One statement for all rows: `executemany` costs a round trip more on PostgreSQL."""
    values: list[Any] = []
    for rows in appends:
        first = rows[0]
        task, session = key_of(db, first.task_id), key_of(db, first.session_id)
        time = moment(db, first.created_at)
        for row in rows:
            values += (
                *(task, session, row.sequence, row.position),
                *(row.type, row.payload, time, row.hash),
            )
    driver.change(db, _insert(sum(map(len, appends))), values)


@lru_cache(maxsize=256)
def _insert(count: int) -> str:
    return _INSERT + ", ".join([_INSERT_ROW] * count)


def _move_head(
    db: BaseDatabaseWrapper,
    task_key: Any,
    rows: Sequence[Row],
    time: Any,
    changes: Mapping[str, Any],
) -> None:
    """The fence held when the numbers were taken, and the row is locked since then."""
    first, last = rows[0], rows[-1]
    place = {"first_position": first.position} if first.sequence == 1 else {}
    if changes or place:
        end = {"last_hash": last.hash, "last_event_at": last.created_at}
        update(Task, {**end, **place, **changes}, "id = %s", task_key)
    else:
        driver.change(db, _MOVE_HEAD, [last.hash, time, task_key])


def publish(*appends: Sequence[Row]) -> None:
    """Followers hear of them after COMMIT."""
    # A hub that fails costs followers a moment, not the command its success.
    transaction.on_commit(partial(_publish, appends), robust=True)


def numbers(rows: Sequence[Row]) -> Appended:
    """Those of one append."""
    first, last = rows[0], rows[-1]
    return Appended(
        session_id=first.session_id,
        first_sequence=first.sequence,
        first_position=first.position,
        last_position=last.position,
        created_at=first.created_at,
        head=Head(
            sequence=last.sequence,
            hash=last.hash,
            time=last.created_at,
            position=last.position,
        ),
    )


def _publish(appends: Sequence[Sequence[Row]]) -> None:
    """After COMMIT: who begins to listen later than that reads the rows itself."""
    wanted = [rows for rows in appends if hub.wants(rows[0].task_id, rows[0].session_id)]
    hub.committed_from_thread([frame(row) for rows in wanted for row in rows])


def forget(task_id: str | uuid.UUID) -> None:
    """Inside a command of `tasks.pruning`, which leaves a tombstone."""
    TaskEvent.objects.filter(task_id=task_id).delete()
