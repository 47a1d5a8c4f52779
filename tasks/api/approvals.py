"""Approvals over HTTP: the inbox, the card, the preview of an edit, the decision."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from tasks import access, decisions, origins
from tasks.access import Principal
from tasks.api import paging
from tasks.api.edge import Identity, who
from tasks.api.errors import body_of
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit
from tasks.api.schemas import (
    ApprovalForYou,
    ApprovalList,
    ApprovalOut,
    BatchIn,
    BatchItemOut,
    BatchOut,
    ErrorInside,
    InboxItem,
    PreviewIn,
    PreviewOut,
    ReplyIn,
    ResolvedOut,
    SnoozeIn,
    answers,
)
from tasks.approvals import Reply
from tasks.errors import ServiceError
from tasks.models import Approval

router = Router(tags=["approvals"])
decides = Identity("approve")

ApprovalKind = Literal["call", "unknown_effect", "question", "limit"]
Trigger = Literal["chat", "api", "agui", "webhook", "cron", "command"]
ApprovalStatus = Literal["pending", "approved", "rejected", "expired", "stale", "cancelled"]


@router.get("", response=answers(200, ApprovalList))
async def list_approvals(
    request: HttpRequest,
    status: Annotated[ApprovalStatus | None, Query()] = None,
    task_id: Annotated[str | None, Query()] = None,
    session_id: Annotated[str | None, Query()] = None,
    workspace_id: Annotated[str | None, Query()] = None,
    kind: Annotated[ApprovalKind | None, Query()] = None,
    tool: Annotated[str | None, Query(max_length=100)] = None,
    trigger: Annotated[Trigger | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> ApprovalList:
    """The inbox, newest first."""
    principal = who(request)
    rows = _related(access.visible_approvals(principal))
    wanted = {"status": status, "kind": kind, "tool": tool, "task__trigger": trigger}
    rows = rows.filter(**{name: value for name, value in wanted.items() if value is not None})
    if task_id is not None:
        rows = rows.filter(task=await access.visible_task(principal, task_id))
    if session_id is not None:
        session = await access.visible_session(principal, session_id)
        rows = rows.filter(task__session=session)
    if workspace_id is not None:
        workspace = await sync_to_async(access.find_workspace)(principal, workspace_id)
        rows = rows.filter(workspace=workspace)
    rows = rows.select_related("task__session__workspace")
    items, following = await sync_to_async(paging.page)(
        rows, "created_at", cursor, limit, principal
    )
    mine = await sync_to_async(access.parts_in)(principal, items)
    names = await sync_to_async(origins.names_of)([row.task for row in items])
    listed = [InboxItem.with_place(row, mine[row.pk], names.get(row.task_id, "")) for row in items]
    return ApprovalList(items=listed, next=following)


@router.post("/resolve", auth=decides, response=answers(202, BatchOut, 404))
async def resolve_many(request: HttpRequest, payload: BatchIn) -> Status[Any]:
    """Several decisions at once; each stands or falls alone, but none is taken if one id is
    unknown."""
    principal = who(request)
    replies = []
    for item in payload.results:
        approval = await access.decidable_approval(principal, item.approval_id)
        replies.append((approval.id, reply_of(item)))
    outcomes = await decisions.resolve_many(principal.user_id, replies)
    results = [
        await _item(str(approval_id), outcome)
        for (approval_id, _), outcome in zip(replies, outcomes, strict=True)
    ]
    return Status(202, BatchOut(results=results))


@router.get("/{approval_id}", response=answers(200, ApprovalForYou, 404))
async def read_approval(request: HttpRequest, approval_id: str) -> ApprovalForYou:
    """The question, and what you may do about it."""
    return await sync_to_async(_card)(who(request), approval_id)


def _card(principal: Principal, approval_id: str) -> ApprovalForYou:
    approval = access.find_approval(principal, approval_id)
    return ApprovalForYou.to(approval, access.parts_in(principal, [approval])[approval.pk])


@router.post("/{approval_id}/resolve", auth=decides, response=answers(202, ResolvedOut, 404, 409))
async def resolve_approval(request: HttpRequest, approval_id: str, payload: ReplyIn) -> Status[Any]:
    """Approve, perhaps with edited arguments, or reject. The run goes on in the background."""
    principal = who(request)
    approval = await access.decidable_approval(principal, approval_id)
    resolved = await decisions.resolve(approval.id, principal.user_id, reply_of(payload))
    return Status(202, ResolvedOut(approval=await _read(resolved)))


@router.post("/{approval_id}/snooze", auth=decides, response=answers(202, ResolvedOut, 404, 409))
async def snooze_approval(request: HttpRequest, approval_id: str, payload: SnoozeIn) -> Status[Any]:
    """More time: it waits for so long from now on. Never less than it has already."""
    principal = who(request)
    approval = await access.decidable_approval(principal, approval_id)
    snoozed = await decisions.snooze(approval.id, principal.username, payload.seconds)
    return Status(202, ResolvedOut(approval=await _read(snoozed)))


@router.post("/{approval_id}/preview", auth=decides, response=answers(200, PreviewOut, 404, 409))
async def preview_approval(
    request: HttpRequest, approval_id: str, payload: PreviewIn
) -> PreviewOut:
    """What the call would do with edited arguments. Changes nothing."""
    approval = await access.decidable_approval(who(request), approval_id)
    evidence = await decisions.preview(approval.id, payload.edited_arguments)
    return PreviewOut(
        diff=evidence.diff,
        standing=evidence.standing,
        arguments_digest=evidence.arguments_digest,
        target_digest=evidence.target_digest,
    )


def reply_of(body: ReplyIn) -> Reply:
    return Reply(
        decision=body.decision,
        edited_arguments=body.edited_arguments,
        answer=body.answer,
        comment=body.comment,
        scope=body.scope,
        previewed=body.target_digest,
    )


def _related(rows: QuerySet[Approval]) -> QuerySet[Approval]:
    return rows.select_related("task", "resolved_by")


async def _read(approval: Approval) -> ApprovalOut:
    """As stored: the service's row may lack the rows around it."""
    return ApprovalOut.of(await _related(Approval.objects.all()).aget(pk=approval.pk))


async def _item(approval_id: str, outcome: Approval | ServiceError) -> BatchItemOut:
    if isinstance(outcome, ServiceError):
        return BatchItemOut(
            approval_id=approval_id, ok=False, error=ErrorInside(**body_of(outcome))
        )
    return BatchItemOut(approval_id=approval_id, ok=True, approval=await _read(outcome))
