"""A stored event as a value, and how this database keeps its ids and times."""

from __future__ import annotations

import functools
import uuid
from datetime import UTC, datetime
from typing import Any, overload

import msgspec
from django.db.backends.base.base import BaseDatabaseWrapper


class Row(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


def key_of(db: BaseDatabaseWrapper, value: str | uuid.UUID) -> Any:
    """An id as this database keeps it."""
    return uuid_of(value) if db.features.has_native_uuid_field else _hex_of(value)


# Ids come again and again, with every event of a run; another form of one costs ten look-ups.


@functools.lru_cache(maxsize=1024)
def uuid_of(key: str | uuid.UUID) -> uuid.UUID:
    return key if isinstance(key, uuid.UUID) else uuid.UUID(key)


@functools.lru_cache(maxsize=1024)
def _hex_of(key: str | uuid.UUID) -> str:
    return uuid_of(key).hex


@functools.lru_cache(maxsize=1024)
def text_of(key: str | uuid.UUID) -> str:
    """SQLite keeps UUIDs as 32 hex digits; we speak with hyphens."""
    return str(uuid_of(key))


@overload
def aware(moment: None) -> None: ...
@overload
def aware(moment: str | datetime) -> datetime: ...
def aware(moment: str | datetime | None) -> datetime | None:
    """SQLite keeps times as text in UTC, which its driver reads when it recognises the column."""
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    if moment is not None and moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    return moment
