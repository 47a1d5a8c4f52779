"""The event store: the only door to `TaskEvent`.

Writing: `append()` inside a command of `tasks.writer`. It numbers the events, links them into the
task's hash chain, inserts them and rings the hub after COMMIT.
Reading: `page()`, `page_session()`, `one()` give rows; `wire_body()` and `frame()` their wire form.

**The chain**, so that an outsider can check it. For each event of a task, in order of `sequence`:

    record = ["TASK ID",SEQUENCE,"TYPE","CREATED AT",PAYLOAD]
    hash   = hex(HMAC-SHA256(key = PILOTHOUSE_AUDIT_KEY, message = previous hash + record))

`record` is UTF-8 without spaces: the task's id in lower case with hyphens, the time as
`2026-01-31T09:30:00.123Z` (UTC, always three digits), and the payload's text exactly as stored.
`previous hash` is the hex text of the event before; 64 zeros for the first. `hash` is lower case.

**Canonical JSON** (`canonical_json()`): UTF-8, no spaces, the keys of every object in the order of
their code points, no escapes but those that JSON demands and \\u2028, \\u2029, \\u0085 (which some
readers take for line ends), integers in full, other numbers in the shortest form that reads back
as the same double, NaN and infinities as null. What JSON cannot say becomes its string.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime

from agent.events import StoredEvent, from_payload
from agent.text import clean
from tasks.conf import conf
from tasks.hub import StoredFrame, hub
from tasks.models import Session, Task, TaskEvent

FIRST_PREVIOUS_HASH = "0" * 64
MAX_CONTENT_BYTES = 4 * 1024
"""More of a tool's `content` than this is cut on a stream."""


class FenceLost(Exception):
    """Another run owns the task, or it has ended: stop at once and write nothing."""

    def __init__(self, task_id: str, run: int) -> None:
        super().__init__(f"Run {run} of task {task_id} no longer owns it.")
        self.task_id = task_id
        self.run = run


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A stored event as it lies in the table."""

    task_id: str
    session_id: str
    sequence: int
    position: int
    type: str
    payload: str
    """Canonical JSON."""
    created_at: datetime
    hash: str


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """What an append was given. With no events, `first_*` is one more than `last_*`."""

    first_sequence: int
    last_sequence: int
    first_position: int
    last_position: int
    created_at: datetime
    """The same for all events of the append."""


# ── writing ───────────────────────────────────────────────────────────────────────────────────


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
    `tasks.lifecycle.move()`, for a run's end after the append. Raises `Task.DoesNotExist`.
    """
    raise NotImplementedError


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def page(task_id: str | uuid.UUID, after: int = 0, limit: int = 200) -> list[Row]:
    """The task's next events behind sequence `after`."""
    raise NotImplementedError


def page_session(
    session_id: str | uuid.UUID, after: int = 0, limit: int = 200, before: int | None = None
) -> list[Row]:
    """The session's next events behind position `after`; with `before`, the last ones ahead of it.

    Always in ascending order.
    """
    raise NotImplementedError


def one(task_id: str | uuid.UUID, sequence: int) -> Row | None:
    raise NotImplementedError


def typed(row: Row) -> StoredEvent:
    return from_payload(row.type, row.payload)


def wire_body(row: Row, *, cut: bool = False) -> bytes:
    """The event as the JSON object of the API and the stream, in one line.

    `cut`: as streams send it, large tool `content` shortened and with the URL of the whole.
    """
    raise NotImplementedError


def frame(row: Row) -> StoredFrame:
    """The event as the hub and `follow()` pass it on: `event:` and `data:` lines without the id."""
    raise NotImplementedError


def canonical_json(value: Any) -> str:
    """One text for one value, whatever built it; the module's docstring defines it."""
    raise NotImplementedError
