"""Statements that are made once: for what every request and every step of a run executes.

The ORM makes a statement anew each time, which costs ten times as much as executing it. Here the
columns and their conversions still come from the models, so a new field needs nothing. Names and
conditions are our own texts; values are parameters, always.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast
from uuid import UUID

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Expression, Field, Model, QuerySet
from django.db.models.base import ModelState

from tasks.conversions import Convert, Storer, Storing, from_database, parameters, to_database
from tasks.driver import change, database, rows

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Sql:
    """A text of ours in the place of a value."""

    text: str


def key_of(value: Any) -> UUID:
    """A key as the driver gave it."""
    return value if isinstance(value, UUID) else UUID(value)


def fetch(sql: str, *params: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, as the driver gives them."""
    db = database()
    return rows(db, sql, parameters(db, params))


def update(model: type[Model], changes: Mapping[str, Any], where: str, *params: Any) -> int:
    """How many rows were changed. Values may be expressions of the ORM."""
    db = database()
    columns = _columns(model, db.vendor)
    assignments, values = [], []
    for name, value in changes.items():
        column, (kept, convert) = columns[name]
        if isinstance(value, Sql):
            assignments.append(f"{column} = {value.text}")
        elif hasattr(value, "resolve_expression"):
            text, own = _resolved(db, model, value)
            assignments.append(f"{column} = {text}")
            values += own
        else:
            assignments.append(f"{column} = %s")
            values.append(value if type(value) in kept else convert(value))
    sql = f"UPDATE {model._meta.db_table} SET {', '.join(assignments)} WHERE {where}"  # noqa: S608
    return change(db, sql, [*values, *parameters(db, params)])


class UpdateEach:
    """Changes several rows of a model by one statement, each by values of its own.

    `given` names these values, in their order, for `SET` and `WHERE`; each is of the kind of a
    field. With their names the table's own columns may not clash.
    """

    def __init__(self, model: type[Model], given: Mapping[str, str], sets: str, where: str) -> None:
        self._fields = [
            cast("Field[Any, Any]", model._meta.get_field(name)) for name in given.values()
        ]
        # SQLite's driver counts the rows of what begins with UPDATE, not of what begins with WITH.
        self._head = f"UPDATE {model._meta.db_table} SET {sets} FROM (WITH given"  # noqa: S608
        self._names = f"({', '.join(given)})"
        self._rest = f"SELECT * FROM given) AS given WHERE {where}"  # noqa: S608
        self._stored = Storer(self._fields)
        self._texts: dict[tuple[str, int], str] = {}

    def __call__(self, values: Sequence[Sequence[Any]]) -> int:
        """How many rows were changed."""
        db = database()
        params = [value for row in values for value in self._stored(db, row)]
        return change(db, self._text(db, len(values)), params)

    def _text(self, db: BaseDatabaseWrapper, count: int) -> str:
        """For so many rows, which never are more than runs."""
        key = db.vendor, count
        found = self._texts.get(key)
        if found is None:
            other = f"({', '.join(['%s'] * len(self._fields))})"
            first = other
            if db.vendor != "sqlite":  # the first row says of which types they all are
                kinds = [field.cast_db_type(db) for field in self._fields]
                first = f"({', '.join(f'CAST(%s AS {kind})' for kind in kinds)})"
            places = ", ".join([first, *[other] * (count - 1)])
            found = self._texts[key] = (
                f"{self._head}{self._names} AS (VALUES {places}) {self._rest}"
            )
        return found


class Rows(Generic[M]):
    """Whole rows of a model: `where` is what stands behind its table's name.

    With `lock` they stay locked until the transaction ends, where the database locks rows.
    """

    def __init__(self, model: type[M], where: str, *, lock: bool = False) -> None:
        fields = model._meta.concrete_fields
        columns = ", ".join(f"{model._meta.db_table}.{field.column}" for field in fields)
        self._sql = f"SELECT {columns} FROM {model._meta.db_table} {where}"  # noqa: S608
        self._lock = lock
        self._made = Maker(model)
        self._name = model._meta.verbose_name
        self._missing: type[Exception] = cast(Any, model).DoesNotExist

    def __call__(self, *params: Any) -> list[M]:
        db = database()
        locking = self._lock and db.features.has_select_for_update
        sql = f"{self._sql} FOR UPDATE" if locking else self._sql
        return [self._made(db, values) for values in rows(db, sql, parameters(db, params))]

    def one(self, *params: Any) -> M | None:
        """The first, if there is any."""
        found = self(*params)
        return found[0] if found else None

    def get(self, *params: Any) -> M:
        """The one that must be there. Raises the model's `DoesNotExist`."""
        row = self.one(*params)
        if row is None:
            raise self._missing(f"There is no such {self._name}.")
        return row


class Maker(Generic[M]):
    """Makes rows of a model from what the driver gave, all its columns in their order."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._fields = model._meta.concrete_fields
        self._names = [field.attname for field in self._fields]
        self._conversions: dict[str, list[tuple[int, Convert]]] = {}

    def __call__(self, db: BaseDatabaseWrapper, values: Sequence[Any]) -> M:
        """As `Model.from_db()` makes one; nobody here listens to the signals that it sends."""
        converted = list(values)
        for position, convert in self._of(db):
            converted[position] = convert(converted[position])
        row = self._model.__new__(self._model)
        state = row._state = ModelState()
        state.adding, state.db = False, db.alias
        vars(row).update(zip(self._names, converted, strict=True))
        return row

    def _of(self, db: BaseDatabaseWrapper) -> list[tuple[int, Convert]]:
        """The conversions that this database needs, by column."""
        found = self._conversions.get(db.vendor)
        if found is None:
            found = self._conversions[db.vendor] = [
                (position, convert)
                for position, field in enumerate(self._fields)
                if (convert := from_database(db, field)) is not None
            ]
        return found


class New(Generic[M]):
    """Makes new rows of a model, as `Model(**values)` does, which asks each field for its default and
    sends two signals; nobody here listens to them."""

    def __init__(self, model: type[M]) -> None:
        self._model = model
        fields = [field for field in model._meta.concrete_fields if not field.generated]
        self._related = {field.name: field.attname for field in fields if field.is_relation}
        self._fixed: dict[str, Any] = {}
        self._made: dict[str, Callable[[], Any]] = {}
        for field in fields:
            if field.has_default() and callable(field.default):
                self._made[field.attname] = field.default
            else:
                self._fixed[field.attname] = field.get_default()

    def __call__(self, **values: Any) -> M:
        """By field; of a relation either the row, which is kept with this one, or the key."""
        row = self._model.__new__(self._model)
        state = row._state = ModelState()
        for name in self._related.keys() & values:
            related = state.fields_cache[name] = values.pop(name)
            values[self._related[name]] = related.pk
        made = {name: make() for name, make in self._made.items() if name not in values}
        vars(row).update(self._fixed | made | values)
        return row


class Beside(Generic[M]):
    """Rows of a model, called `alias` in the statement, each with further columns beside it."""

    def __init__(self, model: type[M], alias: str, further: str, where: str) -> None:
        self._count = len(model._meta.concrete_fields)
        columns = ", ".join(f"{alias}.{field.column}" for field in model._meta.concrete_fields)
        table = model._meta.db_table
        self._sql = f"SELECT {columns}, {further} FROM {table} {alias} {where}"  # noqa: S608
        self._made = Maker(model)

    def __call__(self, *params: Any) -> list[tuple[M, tuple[Any, ...]]]:
        db, count = database(), self._count
        return [
            (self._made(db, values[:count]), values[count:])
            for values in rows(db, self._sql, parameters(db, params))
        ]


class Joined:
    """Rows of a model with those of others that belong to them. `rest` is what stands behind the
    first one's table; `{0}`, `{1}` … are the tables' names. Rows of the first one stay locked."""

    def __init__(self, rest: str, *models: type[Model]) -> None:
        tables = [model._meta.db_table for model in models]
        fields = [model._meta.concrete_fields for model in models]
        columns = [
            f"{table}.{field.column}"
            for table, own in zip(tables, fields, strict=True)
            for field in own
        ]
        self._sql = f"SELECT {', '.join(columns)} FROM {tables[0]} {rest.format(*tables)}"  # noqa: S608
        self._locking = f"{self._sql} FOR UPDATE OF {tables[0]}"
        self._makers = [Maker(model) for model in models]
        self._ends = list(accumulate(map(len, fields)))

    def __call__(self, *params: Any) -> list[tuple[Any, ...]]:
        db = database()
        sql = self._locking if db.features.has_select_for_update else self._sql
        return [self._of(db, values) for values in rows(db, sql, parameters(db, params))]

    def _of(self, db: BaseDatabaseWrapper, values: tuple[Any, ...]) -> tuple[Any, ...]:
        begins = (0, *self._ends)
        parts = zip(self._makers, begins, self._ends, strict=False)
        return tuple(made(db, values[begin:end]) for made, begin, end in parts)


class Insert(Generic[M]):
    """Stores new rows of a model whose key is set already."""

    def __init__(self, model: type[M]) -> None:
        fields = [field for field in model._meta.concrete_fields if not field.generated]
        assert not any(getattr(field, "auto_now", False) for field in fields)
        columns = ", ".join(str(field.column) for field in fields)
        places = ", ".join(["%s"] * len(fields))
        self._sql = f"INSERT INTO {model._meta.db_table} ({columns}) VALUES ({places})"  # noqa: S608
        self._given = itemgetter(*(field.attname for field in fields))
        self._stored = Storer(fields)

    def __call__(self, row: M) -> M:
        db = database()
        change(db, self._sql, self._stored(db, self._given(vars(row))))
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
        db = database()
        if db.vendor not in self._made:
            sql, params = self._build().query.get_compiler(connection=db).as_sql()
            self._made[db.vendor] = f"{sql} LIMIT %s", list(params)
        sql, params = self._made[db.vendor]
        filled = [values[each.number] if isinstance(each, Slot) else each for each in params]
        return rows(db, sql, parameters(db, (*filled, values[-1])))


@cache
def _columns(model: type[Model], vendor: str) -> dict[str, tuple[str, Storing]]:
    """By a field's name its column, and what makes a value storable."""
    db = database()
    assert db.vendor == vendor
    fields = [field for field in model._meta.concrete_fields if not field.generated]
    found = {field.attname: (str(field.column), to_database(db, field)) for field in fields}
    return found | {field.name: found[field.attname] for field in fields}


def _resolved(db: BaseDatabaseWrapper, model: type[Model], value: Any) -> tuple[str, list[Any]]:
    query = model._default_manager.all().query
    resolved = value.resolve_expression(query, allow_joins=False, for_save=True)
    sql, params = query.get_compiler(connection=db).compile(resolved)
    return sql, list(params)
