"""Statements that are made once: for what every request and every step of a run executes.

The ORM makes a statement anew each time, which costs ten times as much as executing it. Here the
columns and their conversions still come from the models, so a new field needs nothing. Names and
conditions are our own texts; values are parameters, always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression, Field, Model, QuerySet

M = TypeVar("M", bound=Model)

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Sql:
    """A text of ours in the place of a value."""

    text: str


def key_of(value: Any) -> UUID:
    """A key as the driver gave it."""
    return value if isinstance(value, UUID) else UUID(value)


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, as the driver gives them."""
    db = _db()
    with db.cursor() as cursor:
        cursor.execute(sql, _adapted(db, params))
        return list(cursor.fetchall())


def update(model: type[Model], changes: Mapping[str, Any], where: str, *params: Any) -> int:
    """How many rows were changed. Values may be expressions of the ORM."""
    db = _db()
    assignments, values = [], []
    for name, value in changes.items():
        field = model._meta.get_field(name)
        assert isinstance(field, Field)
        text, own = _assigned(db, model, field, value)
        assignments.append(f"{field.column} = {text}")
        values += own
    sql = f"UPDATE {model._meta.db_table} SET {', '.join(assignments)} WHERE {where}"  # noqa: S608
    with db.cursor() as cursor:
        cursor.execute(sql, [*values, *_adapted(db, params)])
        return int(cursor.rowcount)


class Rows(Generic[M]):
    """Whole rows of a model: `where` is what stands behind its table's name.

    With `lock` they stay locked until the transaction ends, where the database locks rows.
    """

    def __init__(self, model: type[M], where: str, *, lock: bool = False) -> None:
        fields = model._meta.concrete_fields
        columns = ", ".join(f"{model._meta.db_table}.{field.column}" for field in fields)
        self._model = model
        self._names = [field.attname for field in fields]
        self._sql = f"SELECT {columns} FROM {model._meta.db_table} {where}"  # noqa: S608
        self._lock = lock
        self._conversions: dict[str, list[tuple[int, Convert]]] = {}

    def __call__(self, *params: Any) -> list[M]:
        db = _db()
        locking = self._lock and db.features.has_select_for_update
        with db.cursor() as cursor:
            cursor.execute(
                f"{self._sql} FOR UPDATE" if locking else self._sql, _adapted(db, params)
            )
            found = cursor.fetchall()
        return [self._row(db, values) for values in found]

    def one(self, *params: Any) -> M | None:
        """The first, if there is any."""
        return next(iter(self(*params)), None)

    def get(self, *params: Any) -> M:
        """The one that must be there. Raises the model's `DoesNotExist`."""
        row = self.one(*params)
        if row is None:
            missing: type[Exception] = cast(Any, self._model).DoesNotExist
            raise missing(f"There is no such {self._model._meta.verbose_name}.")
        return row

    def _row(self, db: BaseDatabaseWrapper, values: Sequence[Any]) -> M:
        converted = list(values)
        for position, convert in self._of(db):
            converted[position] = convert(converted[position])
        return self._model.from_db(db.alias, self._names, converted)

    def _of(self, db: BaseDatabaseWrapper) -> list[tuple[int, Convert]]:
        """The conversions that this database needs, by column."""
        if db.vendor not in self._conversions:
            self._conversions[db.vendor] = [
                (position, convert)
                for position, field in enumerate(self._model._meta.concrete_fields)
                if (convert := _conversion(db, field)) is not None
            ]
        return self._conversions[db.vendor]


class Insert(Generic[M]):
    """Stores new rows of a model whose key is set already."""

    def __init__(self, model: type[M]) -> None:
        self._fields = [field for field in model._meta.concrete_fields if not field.generated]
        columns = ", ".join(str(field.column) for field in self._fields)
        places = ", ".join(["%s"] * len(self._fields))
        self._sql = f"INSERT INTO {model._meta.db_table} ({columns}) VALUES ({places})"  # noqa: S608

    def __call__(self, row: M) -> M:
        db = _db()
        values = [field.get_db_prep_save(field.pre_save(row, True), db) for field in self._fields]
        with db.cursor() as cursor:
            cursor.execute(self._sql, values)
        row._state.adding, row._state.db = False, db.alias
        return row


class Slot(Expression):
    """Stands for a value that a `Prepared` query is given at each execution."""

    def __init__(self, number: int, output_field: Field[Any, Any]) -> None:
        super().__init__(output_field=output_field)
        self.number = number

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "%s", [self]


class Prepared:
    """A query of the ORM with slots in it, made into a statement once; the last value that it is
    given is how many rows at most."""

    def __init__(self, build: Callable[[], QuerySet[Any, Any]]) -> None:
        self._build = build
        self._made: dict[str, tuple[str, list[Any]]] = {}

    def __call__(self, *values: Any) -> list[tuple[Any, ...]]:
        """The rows, as the driver gives them."""
        db = _db()
        if db.vendor not in self._made:
            sql, params = self._build().query.get_compiler(connection=db).as_sql()
            self._made[db.vendor] = f"{sql} LIMIT %s", list(params)
        sql, params = self._made[db.vendor]
        filled = [values[each.number] if isinstance(each, Slot) else each for each in params]
        return fetch(sql, *filled, values[-1])


def _db() -> BaseDatabaseWrapper:
    return connections[DEFAULT_DB_ALIAS]


def _adapted(db: BaseDatabaseWrapper, values: Sequence[Any]) -> list[Any]:
    """Parameters as the driver takes them."""
    return [_parameter(db, value) for value in values]


def _parameter(db: BaseDatabaseWrapper, value: Any) -> Any:
    if isinstance(value, UUID):
        return value if db.features.has_native_uuid_field else value.hex
    if isinstance(value, datetime):
        return db.ops.adapt_datetimefield_value(value)
    return str(value) if isinstance(value, Enum) else value


def _assigned(
    db: BaseDatabaseWrapper, model: type[Model], field: Field[Any, Any], value: Any
) -> tuple[str, list[Any]]:
    if isinstance(value, Sql):
        return value.text, []
    if not hasattr(value, "resolve_expression"):
        return "%s", [field.get_db_prep_save(value, db)]
    query = model._default_manager.all().query
    resolved = value.resolve_expression(query, allow_joins=False, for_save=True)
    sql, params = query.get_compiler(connection=db).compile(resolved)
    return sql, list(params)


def _conversion(db: BaseDatabaseWrapper, field: Field[Any, Any]) -> Convert | None:
    column = field.get_col(field.model._meta.db_table)
    steps = [*db.ops.get_db_converters(column), *column.get_db_converters(db)]
    if not steps:
        return None

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value, column, db)
        return value

    return convert
