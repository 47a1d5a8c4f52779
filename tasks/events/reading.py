"""Stored events as rows: of a task, of a session, or one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agent.events import TERMINAL_TYPES, StoredEvent, from_payload
from tasks import driver
from tasks.events.rows import Row, aware, key_of, text_of
from tasks.events.wire import told
from tasks.models import TaskEvent

_COLUMNS = tuple(Row.__struct_fields__)
_PAGE = f"""
    SELECT {", ".join(_COLUMNS)} FROM tasks_taskevent
    WHERE task_id = %s AND sequence > %s ORDER BY sequence LIMIT %s"""  # noqa: S608


# A time as text: SQLite's driver would make a value of each.
_PAST = f"""
    SELECT sequence, position, type, payload, CAST(created_at AS TEXT) FROM {TaskEvent._meta.db_table}
    WHERE task_id = %s AND sequence > %s ORDER BY sequence LIMIT %s"""  # noqa: S608


@dataclass(frozen=True)
class Past:
    """A piece of the log of a task that has ended."""

    body: bytes
    """Its events as the task's stream tells them; empty: there are none, or the next one is large."""
    count: int = 0
    last: int = 0
    ended: bool = False
    """The last one is the end of the task."""


def past(task_id: str | uuid.UUID, after: int, limit: int, most_bytes: int) -> Past:
    """The task's next events behind `after`, as many as fit."""
    db = driver.database()
    found = driver.rows(db, _PAST, [key_of(db, task_id), after, limit])
    texts: list[str] = []
    size, last, ended = 0, after, False
    for event in told(text_of(task_id), found):
        size += len(event.text)
        if size > most_bytes:
            break
        texts.append(event.text)
        last, ended = event.sequence, event.type in TERMINAL_TYPES
        if ended:
            break
    return Past("".join(texts).encode(), len(texts), last, ended)


_BRIEF = f"""
    SELECT {", ".join(_COLUMNS)} FROM tasks_taskevent
    WHERE task_id = %s AND sequence > %s AND sequence <= %s AND length(payload) <= %s
    ORDER BY sequence"""  # noqa: S608


def brief(task_id: str | uuid.UUID, after: int, last: int, most: int) -> list[Row]:
    """The events behind `after`, up to `last` or to the first with more than `most` characters."""
    db = driver.database()
    found = driver.rows(db, _BRIEF, [key_of(db, task_id), after, last, most])
    rows = [row_of(values) for values in found]
    return [row for number, row in enumerate(rows, after + 1) if row.sequence == number]


def page(task_id: str | uuid.UUID, after: int = 0, limit: int = 200) -> list[Row]:
    """The task's next events behind sequence `after`."""
    db = driver.database()
    found = driver.rows(db, _PAGE, [key_of(db, task_id), after, limit])
    return [row_of(values) for values in found]


def page_session(
    session_id: str | uuid.UUID, after: int = 0, limit: int = 200, before: int | None = None
) -> list[Row]:
    """The session's next events behind position `after`; with `before`, the last ones ahead of it.

    Always in ascending order.
    """
    found = TaskEvent.objects.filter(session_id=session_id, position__gt=after)
    if before is None:
        values = found.order_by("position").values_list(*_COLUMNS)[:limit]
        return [row_of(value) for value in values]
    newest = found.filter(position__lt=before).order_by("-position").values_list(*_COLUMNS)
    return [row_of(value) for value in newest[:limit]][::-1]


def stream(task_id: str | uuid.UUID, after: int | None = None) -> Iterator[Row]:
    """All events of a task in order of sequence, or those behind `after`; however many there are."""
    found = TaskEvent.objects.filter(task_id=task_id).order_by("sequence")
    if after is not None:
        found = found.filter(sequence__gt=after)
    yield from map(row_of, found.values_list(*_COLUMNS).iterator(2000))


def one(task_id: str | uuid.UUID, sequence: int) -> Row | None:
    found = TaskEvent.objects.filter(task_id=task_id, sequence=sequence)
    values = found.values_list(*_COLUMNS).first()
    return None if values is None else row_of(values)


def row_of(values: Sequence[Any]) -> Row:
    """From the columns in the order of `Row`'s fields, as the ORM or the driver gives them."""
    task_id, session_id, sequence, position, type_, payload, created_at, digest = values
    return Row(
        task_id=text_of(task_id),
        session_id=text_of(session_id),
        sequence=sequence,
        position=position,
        type=type_,
        payload=payload,
        created_at=aware(created_at),
        hash=digest,
    )


def typed(row: Row) -> StoredEvent:
    return from_payload(row.type, row.payload)
