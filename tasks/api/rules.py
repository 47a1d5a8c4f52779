"""Policy rules over HTTP: what is in force where one works, and taking back what a card left."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from tasks import access, quorum, rules
from tasks.access import APPROVERS, Principal
from tasks.api import paging
from tasks.api.edge import Identity, who
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit
from tasks.api.schemas import RuleList, RuleOut, answers
from tasks.errors import NotFound
from tasks.models import PolicyRule
from tasks.writer import writer

router = Router(tags=["rules"])
decides = Identity("approve")


@router.get("", response=answers(200, RuleList))
async def list_rules(
    request: HttpRequest,
    session_id: Annotated[str | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> RuleList:
    """Rules that count where you work, the newest first; with a session, those that count in it."""
    return await sync_to_async(_list)(who(request), session_id, cursor, limit)


def _list(principal: Principal, session_id: str | None, cursor: str | None, limit: int) -> RuleList:
    here = _where(principal, access.EVERY_ROLE) | Q(scope=PolicyRule.Scope.GLOBAL)
    rows = rules.live().filter(here | _decided(principal))
    if session_id is not None:
        session = access.find_session(principal, session_id)
        rows = rows.filter(
            Q(scope=PolicyRule.Scope.GLOBAL)
            | Q(workspace_id=session.workspace_id)
            | Q(session=session)
            | Q(task__session=session)
        )
    items, following = paging.page(rows.select_related("made_by"), "created_at", cursor, limit)
    mine = set(_revocable(principal).filter(pk__in=[row.pk for row in items]).values_list("pk"))
    return RuleList(
        items=[RuleOut.of(row, can_revoke=(row.pk,) in mine) for row in items], next=following
    )


@router.delete("/{rule_id}", auth=decides, response=answers(204, None, 404))
async def revoke_rule(request: HttpRequest, rule_id: str) -> Status[Any]:
    """It stops to count, for running tasks too. Only of rules that an answer to a card left;
    an administrator's are changed in the admin."""
    principal = who(request)
    rule = await sync_to_async(_find)(principal, rule_id)
    if not await writer.run(partial(rules.revoke, rule, principal.username)):
        raise NotFound("rule")
    return Status(204, None)


def _find(principal: Principal, rule_id: str) -> PolicyRule:
    return access.find(_revocable(principal), rule_id, "rule")


def _revocable(principal: Principal) -> QuerySet[PolicyRule]:
    if "approve" not in principal.scopes:
        return PolicyRule.objects.none()
    return rules.live().filter(_decided(principal))


def _decided(principal: Principal) -> Q:
    """Left by answers to cards that they may decide: these they see and may take back."""
    left = Q(made_from__isnull=False)
    if principal.decides_everywhere:
        return left
    return left & (_where(principal, APPROVERS) | quorum.of_groups(principal.decides))


def _where(principal: Principal, roles: access.Roles) -> Q:
    """Rules of the places in which they have such a role."""
    sessions = access.visible_sessions(principal, roles).values("pk")
    return (
        Q(workspace__in=access.visible_workspaces(principal, roles).values("pk"))
        | Q(session__in=sessions)
        | Q(task__session__in=sessions)
    )
