"""Lists: `{"items", "next"}` by keyset, so that page 1,000 costs what page 1 costs.

A list is ordered by a time and the id, newest first; `next` is where the last item stood. Rows that
are added meanwhile come before the first page and shift nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypeVar
from uuid import UUID

import msgspec
from django.db.models import Model, Q, QuerySet
from ninja import Query

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
    rows: QuerySet[Row], field: str, cursor: str | None, limit: int
) -> tuple[list[Row], str | None]:
    """The items behind `cursor`, newest first by `field`, and the cursor behind them."""
    if cursor is not None:
        moment, row_id = _read(cursor)
        older = Q(**{f"{field}__lt": moment}) | Q(**{field: moment, "pk__lt": row_id})
        rows = rows.filter(older)
    found = list(rows.order_by(f"-{field}", "-pk")[: limit + 1])
    items = found[:limit]
    more = len(found) > limit
    return items, _write(getattr(items[-1], field), items[-1].pk) if more else None


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
