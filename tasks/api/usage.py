"""What models used and cost: one's own; staff see everybody's."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Router

from tasks import profiles, usage
from tasks.access import Principal
from tasks.api.edge import who
from tasks.api.schemas import UsageItem, UsageOut, UsageSums, answers
from tasks.errors import Invalid
from tasks.models import Session
from tasks.usage import Total

router = Router(tags=["models"])

By = Literal["day", "session", "user"]
DAYS = 30
MAX_ITEMS = 1000
_COLUMN = {"day": "day", "session": "session_id", "user": "user_id"}


@router.get("", response=answers(200, UsageOut))
async def read_usage(
    request: HttpRequest,
    by: Annotated[By, Query()] = "day",
    since: Annotated[date | None, Query()] = None,
    until: Annotated[date | None, Query()] = None,
) -> UsageOut:
    """Model calls, tokens and cost per day, session or user; both days included, by default the
    last 30. Your own; as staff, everybody's. At most 1,000 items, those of newest days first."""
    return await sync_to_async(_read)(who(request), by, since, until)


def _read(principal: Principal, by: By, since: date | None, until: date | None) -> UsageOut:
    until = until or timezone.localdate()
    try:
        since = since or until - timedelta(days=DAYS - 1)
    except OverflowError:
        message = "until is too early."
        raise Invalid("invalid", message, {"until": message}) from None
    owner = None if principal.is_staff else principal.user_id
    found = usage.rows(user_id=owner, since=since, until=until)
    groups = [(key[0], sums) for key, sums in usage.by(found, _COLUMN[by])][:MAX_ITEMS]
    names = _names(by, [key for key, _ in groups])
    return UsageOut(
        by=by,
        since=str(since),
        until=str(until),
        currency=profiles.currency(),
        items=[UsageItem(key=str(key), name=names[key], **_sums(sums)) for key, sums in groups],
        total=UsageSums(**_sums(usage.total(found))),
    )


def _names(by: By, keys: list[Any]) -> dict[Any, str]:
    if by == "session":
        return dict(Session.objects.filter(pk__in=keys).values_list("pk", "title"))
    if by == "user":
        return dict(User.objects.filter(pk__in=keys).values_list("pk", "username"))
    return {key: str(key) for key in keys}


def _sums(sums: Total) -> dict[str, Any]:
    return {name: getattr(sums, name) for name in UsageSums.model_fields}
