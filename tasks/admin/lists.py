"""What keeps the admin's lists as fast with a million rows as with ten: nothing in them counts,
groups or sorts a whole table. Where Django would, an index is asked for what is needed instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Max, Min, Model, QuerySet
from django.utils import timezone
from django.utils.functional import cached_property

from tasks.words import say

if TYPE_CHECKING:
    Rows = QuerySet[Any]
    Pages = Paginator[Any]
else:
    Rows, Pages = QuerySet, Paginator  # not generic at run time

MOST_COUNTED = 10_000
_FIRST_OF = {"year": {"month": 1, "day": 1}, "month": {"day": 1}, "day": {}}


class AtLeast(int):
    """As many rows as anybody will leaf through; there may be more."""

    def __str__(self) -> str:
        return say("{n} or more", n=f"{int(self):,}")


class ShortPaginator(Pages):
    """Knows no pages behind the first `MOST_COUNTED` rows: a filter or a date leads further."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        counted: int = rows[:MOST_COUNTED].count()
        return AtLeast(counted) if counted == MOST_COUNTED else counted


class IndexedQuerySet(Rows):
    """A date hierarchy from the first date to the last, which an index has: looking for those
    between them that have rows would mean to read all rows."""

    def aggregate(self, *args: Any, **wanted: Any) -> dict[str, Any]:
        """The admin's `first=Min(…), last=Max(…)`: databases read all rows for the two together."""
        if args or wanted.keys() != {"first", "last"}:
            return super().aggregate(*args, **wanted)
        column = wanted["first"].source_expressions[0].name
        values = self.values_list(column, flat=True)
        return {
            "first": values.order_by(column).first(),
            "last": values.order_by(f"-{column}").first(),
        }

    def datetimes(self, field_name: str, kind: str, *_: Any, **__: Any) -> Any:
        return list(self._periods(field_name, kind))

    dates = datetimes

    def _periods(self, column: str, kind: str) -> Iterator[date]:
        ends = self.aggregate(first=Min(column), last=Max(column))
        if ends["first"] is None:
            return
        begin, last = _day(ends["first"]).replace(**_FIRST_OF[kind]), _day(ends["last"])
        while begin <= last:
            yield begin
            begin = _following(begin, kind)


def _day(value: date | datetime) -> date:
    return timezone.localtime(value).date() if isinstance(value, datetime) else value


def _following(begin: date, kind: str) -> date:
    if kind == "year":
        return begin.replace(year=begin.year + 1)
    if kind == "month":
        later = date.fromordinal(begin.toordinal() + 31)
        return later.replace(day=1)
    return date.fromordinal(begin.toordinal() + 1)


class KnownValues(admin.AllValuesFieldListFilter):
    """The values that a column with few of them has, each found from the one before it."""

    def __init__(self, field: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(field, *args, **kwargs)
        self.lookup_choices: Any = _values(field.model, field.column)


def _values(model: type[Model], column: str) -> list[Any]:
    table = connection.ops.quote_name(model._meta.db_table)
    name = connection.ops.quote_name(column)
    least = f"SELECT min({name}) FROM {table}"  # noqa: S608 - only names
    following = f"({least} WHERE {name} > value)"
    statement = (
        f"WITH RECURSIVE found(value) AS ({least} UNION ALL"  # noqa: S608 - only names
        f" SELECT {following} FROM found WHERE value IS NOT NULL)"
        " SELECT value FROM found WHERE value IS NOT NULL"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [value for (value,) in cursor.fetchall()]


def worded(states: Mapping[str, tuple[str, str, str]]) -> type[admin.ChoicesFieldListFilter]:
    """A filter that calls each choice what the list calls it: `states` has its words last."""

    class Worded(admin.ChoicesFieldListFilter):
        def choices(self, changelist: Any) -> Iterator[dict[str, Any]]:  # type: ignore[override] # stubs
            said = {title: states[value][2] for value, title in self.field.flatchoices}
            for choice in super().choices(changelist):
                yield {**choice, "display": said.get(choice["display"], choice["display"])}

    return Worded
