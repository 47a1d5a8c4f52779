"""Values of a model's fields as the database's driver takes and gives them.

The ORM asks field, model and database anew for every value. Here the common kinds of fields are
settled once for each database; everything else goes the ORM's own way, and a test compares both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple
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

PLAIN: frozenset[type] = frozenset({str, int, float, bool, bytes, type(None)})
"""What every driver takes and gives as it is."""
_NOTHING: frozenset[type] = frozenset({type(None)})
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


class Storing(NamedTuple):
    """How values of a field are made storable."""

    kept: frozenset[type]
    """Those of these types are stored as they are: most values, for which nothing is called."""
    convert: Convert
    """Any other."""


class Storer:
    """Makes values of these fields storable, one of each in their order."""

    def __init__(self, fields: Iterable[Field[Any, Any]]) -> None:
        self._fields = tuple(fields)
        self._how: dict[str, list[Storing]] = {}

    def __call__(self, db: BaseDatabaseWrapper, values: Iterable[Any]) -> list[Any]:
        how = self._how.get(db.vendor)
        if how is None:
            how = self._how[db.vendor] = [to_database(db, field) for field in self._fields]
        return [
            value if type(value) in kept else convert(value)
            for value, (kept, convert) in zip(values, how, strict=True)
        ]


def to_database(db: BaseDatabaseWrapper, field: Field[Any, Any]) -> Storing:
    """For values of the field."""
    general = partial(field.get_db_prep_save, connection=db)
    kept = field
    while isinstance(kept, ForeignKey):
        kept = kept.target_field
    if isinstance(kept, _PLAIN_FIELDS):
        return Storing(PLAIN, general)
    return Storing(_NOTHING, general if db.vendor != "sqlite" else _sqlites(db, kept, general))


def _sqlites(db: BaseDatabaseWrapper, field: Field[Any, Any], general: Convert) -> Convert:
    """For the usual values of the common kinds of fields, and for any other what is general."""
    match field:
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
