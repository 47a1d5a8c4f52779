"""Lists: `{"items", "next"}` by keyset, so that page 1,000 costs what page 1 costs.

A list is ordered by a time and the id, newest first; `next` is where the last item stood. Rows that
are added meanwhile come before the first page and shift nothing. What a list reads depends on its
limit, not on how many rows there are, nor on how many of them its reader may see.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar
from uuid import UUID

import msgspec
from django.db import connection
from django.db.models import Model, Q, QuerySet
from ninja import Query

from tasks import access
from tasks.access import Principal
from tasks.errors import Invalid

MAX_LIMIT = 1000
DEFAULT_LIMIT = 200
MAX_NUMBER = 2**63 - 1
"""The greatest sequence or position that a database can hold."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Number = Annotated[int, Query(ge=0, le=MAX_NUMBER)]
Cursor = Annotated[str | None, Query(max_length=200)]

Row = TypeVar("Row", bound=Model)


def page(
    rows: QuerySet[Row],
    field: str,
    cursor: str | None,
    limit: int,
    principal: Principal | None = None,
) -> tuple[list[Row], str | None]:
    """The items behind `cursor`, newest first by `field`, and the cursor behind them. Rows that are
    narrowed to what a principal may see are found faster with that principal."""
    if cursor is not None:
        moment, row_id = _read(cursor)
        older = Q(**{f"{field}__lt": moment}) | Q(pk__lt=row_id)
        rows = rows.filter(older, **{f"{field}__lte": moment})  # the index begins there
    rows = rows.order_by(f"-{field}", "-pk")
    parts = access.parts(principal, rows.model) if principal is not None else []
    if parts:
        rows = rows.filter(pk__in=_newest(rows, field, parts, limit + 1))
    found = list(rows[: limit + 1])
    items = found[:limit]
    more = len(found) > limit
    return items, _write(getattr(items[-1], field), items[-1].pk) if more else None


def _newest(rows: QuerySet[Row], field: str, parts: Sequence[Q], count: int) -> list[Any]:
    """Keys of the first rows of all parts together: each is cut before they are put together, which
    the ORM cannot say for SQLite."""
    cut = [rows.filter(part).values_list("pk", field)[:count].query for part in parts]
    compiled = [query.sql_with_params() for query in cut]
    texts = [f"SELECT * FROM ({text}) part{n}" for n, (text, _) in enumerate(compiled)]  # noqa: S608 - made by the ORM
    with connection.cursor() as cursor:
        cursor.execute(
            " UNION ".join(texts) + f" ORDER BY 2 DESC, 1 DESC LIMIT {count}",
            [value for _, values in compiled for value in values],
        )
        return [rows.model._meta.pk.to_python(key) for key, _ in cursor.fetchall()]


def numbered(bodies: Sequence[bytes], next_number: int | None) -> bytes:
    """A list of events, which are JSON already."""
    following = b"null" if next_number is None else str(next_number).encode()
    return b'{"items":[' + b",".join(bodies) + b'],"next":' + following + b"}"


def _write(moment: datetime, row_id: UUID) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([moment, row_id])).rstrip(b"=").decode()


def _read(cursor: str) -> tuple[datetime, UUID]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        moment, row_id = msgspec.json.decode(text, type=tuple[datetime, UUID])
    except (binascii.Error, ValueError):
        moment, row_id = None, None
    if moment is None or row_id is None or moment.tzinfo is None:
        message = "This cursor is not one that a list of this API gave."
        raise Invalid("invalid", message, {"cursor": message})
    return moment, row_id
