"""One's own API tokens. A token is no way to more: not to other scopes, not to a longer life."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from ninja import Router
from ninja.responses import Status

from tasks import access
from tasks.access import SCOPES, Principal
from tasks.api.edge import who
from tasks.api.schemas import NewTokenOut, TokenIn, TokenList, TokenOut, answers
from tasks.errors import Forbidden, NotFound
from tasks.models import ApiToken

router = Router(tags=["tokens"])


@router.get("", response=answers(200, TokenList))
async def list_tokens(request: HttpRequest) -> TokenList:
    """Your tokens, newest first; the tokens themselves are not known any more."""
    items = [TokenOut.of(row) async for row in _own(who(request)).order_by("-pk")]
    return TokenList(items=items, next=None)


@router.post("", response=answers(201, NewTokenOut))
async def create_token(request: HttpRequest, payload: TokenIn) -> Status[Any]:
    """A new token. The answer is the only place where it can be read."""
    principal = who(request)
    scopes = list[str](payload.scopes or (scope for scope in SCOPES if scope in principal.scopes))
    for scope in scopes:
        principal.need(scope)
    expires = _expiry(principal, payload.expires_in_days)
    return Status(201, await sync_to_async(_issue)(principal, payload.name, expires, scopes))


def _expiry(principal: Principal, days: int | None) -> datetime | None:
    expires = timezone.now() + timedelta(days=days) if days is not None else None
    limit = principal.token_expires_at
    if limit is not None and (expires is None or expires > limit):
        raise Forbidden("scope", "A token cannot make one that lives longer than itself.")
    return expires


def _issue(
    principal: Principal, name: str, expires: datetime | None, scopes: list[str]
) -> NewTokenOut:
    user = User.objects.get(pk=principal.user_id)
    token = access.issue_token(user, name, expires, scopes)
    row = ApiToken.objects.get(digest=access.digest_of(token))
    return NewTokenOut(**TokenOut.of(row).model_dump(), token=token)


@router.delete("/{token_id}", response=answers(204, None, 404))
async def revoke_token(request: HttpRequest, token_id: str) -> Status[Any]:
    """It stops working at once, and ends the streams that it opened."""
    exists = token_id.isascii() and token_id.isdecimal() and len(token_id) < 19
    principal = who(request)
    number, revoke = int(token_id) if exists else 0, sync_to_async(access.revoke_token)
    if not await revoke(number, principal.username, principal.user_id):
        raise NotFound("token")
    return Status(204, None)


def _own(principal: Principal) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(user_id=principal.user_id)
