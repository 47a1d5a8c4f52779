"""Values of a model's fields as the database's driver takes and gives them.

The ORM asks field, model and database anew for every value. Here the common kinds of fields are
settled once for each database; everything else goes the ORM's own way, and a test compares both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    BigIntegerField,
    BooleanField,
    CharField,
    DateTimeField,
    Field,
    ForeignKey,
    IntegerField,
    JSONField,
    TextField,
    UUIDField,
)

Convert = Callable[[Any], Any]

PLAIN = frozenset({str, int, float, bool, bytes, type(None)})
"""What every driver takes and gives as it is."""
_PLAIN_FIELDS = (CharField, TextField, IntegerField, BigIntegerField, BooleanField)


def parameters(db: BaseDatabaseWrapper, values: tuple[Any, ...]) -> list[Any]:
    """Values of any kind, for a statement."""
    return [value if type(value) in PLAIN else _parameter(db, value) for value in values]


def _parameter(db: BaseDatabaseWrapper, value: Any) -> Any:
    if isinstance(value, UUID):
        return value if db.features.has_native_uuid_field else value.hex
    if isinstance(value, datetime):
        return moment(db, value)
    return str(value) if isinstance(value, Enum) else value


def moment(db: BaseDatabaseWrapper, value: datetime) -> Any:
    """An aware time as the database keeps it."""
    if db.vendor == "sqlite" and db.timezone is UTC:
        return _utc(value)
    return db.ops.adapt_datetimefield_value(value)


@lru_cache(maxsize=64)
def _utc(value: datetime) -> str:
    """What is stored together has one time, in several rows."""
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ")


# ── to the database ───────────────────────────────────────────────────────────────────────────


def to_database(db: BaseDatabaseWrapper, field: Field[Any, Any]) -> Convert:
    """Makes a value of the field storable."""

    def general(value: Any) -> Any:
        return None if value is None else field.get_db_prep_save(value, db)

    kept = field
    while isinstance(kept, ForeignKey):
        kept = kept.target_field
    if isinstance(kept, _PLAIN_FIELDS):
        return lambda value: value if type(value) in PLAIN else general(value)
    if db.vendor != "sqlite":
        return general
    match kept:
        case UUIDField():
            return lambda value: value.hex if type(value) is UUID else general(value)
        case DateTimeField():
            return lambda value: moment(db, value) if _is_aware(value) else general(value)
        case JSONField(encoder=None):
            return lambda value: (
                json.dumps(value) if type(value) in (dict, list) else general(value)
            )
        case _:
            return general


def _is_aware(value: Any) -> bool:
    return type(value) is datetime and value.tzinfo is not None


# ── from the database ─────────────────────────────────────────────────────────────────────────


def from_database(db: BaseDatabaseWrapper, field: Field[Any, Any]) -> Convert | None:
    """Makes a value of the driver into one of the field; None: it is that already."""
    if db.vendor == "sqlite":
        kept = field
        while isinstance(kept, ForeignKey):
            kept = kept.target_field
        if isinstance(kept, UUIDField):
            return _uuid
        if isinstance(kept, DateTimeField) and db.timezone is UTC:
            return _aware
        if isinstance(kept, JSONField) and kept.decoder is None:
            return _json
        if isinstance(kept, BooleanField):
            return None  # as times: the driver's own doing
    return _general(db, field)


def _uuid(value: str | None) -> UUID | None:
    return None if value is None else UUID(value)


def _aware(value: datetime | None) -> datetime | None:
    """The driver has read it already, by the column's type."""
    return None if value is None else value.replace(tzinfo=UTC)


def _json(value: str | None) -> Any:
    return {} if value == "{}" else None if value is None else json.loads(value)


def _general(db: BaseDatabaseWrapper, field: Field[Any, Any]) -> Convert | None:
    column = field.get_col(field.model._meta.db_table)
    steps = [*db.ops.get_db_converters(column), *column.get_db_converters(db)]
    if not steps:
        return None

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value, column, db)
        return value

    return convert
