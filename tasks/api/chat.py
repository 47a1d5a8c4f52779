"""The three-line chat API: ask, listen (`/api/stream/{session}`), confirm."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja import Router

from tasks import access, decisions, service
from tasks.access import APPROVERS, Principal
from tasks.api.edge import Identity, who
from tasks.api.errors import body_of
from tasks.api.schemas import (
    ChatIn,
    ChatOut,
    ConfirmIn,
    ConfirmItemOut,
    ConfirmOut,
    ConfirmResultIn,
    ErrorInside,
    answers,
)
from tasks.approvals import Reply
from tasks.commands import TaskRequest
from tasks.errors import NotFound, ServiceError
from tasks.models import Approval, Session, Task

router = Router(tags=["chat"])


@router.post("/chat", response=answers(200, ChatOut, 404, 409, 413, 429))
async def chat(request: HttpRequest, payload: ChatIn) -> ChatOut:
    """Ask. 409 while a reply is in progress."""
    principal = who(request)
    session = await access.writable_session(principal, payload.session_id)
    created = await service.create(
        TaskRequest(
            goal=payload.text,
            owner_id=principal.user_id,
            by=principal.username,
            trigger=Task.Trigger.CHAT,
            session_id=session.id,
        )
    )
    return ChatOut(ok=True, task_id=str(created.task_id))


@router.post("/confirm", auth=Identity("approve"), response=answers(200, ConfirmOut, 404, 409))
async def confirm(request: HttpRequest, payload: ConfirmIn) -> ConfirmOut:
    """Answer the calls that wait. If none of the answers counts, the first refusal is the answer."""
    principal = who(request)
    session = await access.visible_session(principal, payload.session_id)
    find = sync_to_async(_asked)
    replies = [
        (await find(principal, session, item.tool_call_id), _reply(item))
        for item in payload.results
    ]
    outcomes = await decisions.resolve_many(
        principal.user_id, [(approval.id, reply) for approval, reply in replies]
    )
    refusals = [outcome for outcome in outcomes if isinstance(outcome, ServiceError)]
    if len(refusals) == len(outcomes):
        raise refusals[0]
    items = [
        _item(item.tool_call_id, outcome)
        for item, outcome in zip(payload.results, outcomes, strict=True)
    ]
    return ConfirmOut(ok=not refusals, results=items)


def _asked(principal: Principal, session: Session, tool_call_id: str) -> Approval:
    """The question about this call: the one that waits, else the last."""
    rows = access.visible_approvals(principal, APPROVERS).filter(
        task__session=session, tool_call_id=tool_call_id
    )
    pending = rows.filter(status=Approval.Status.PENDING).first()
    found = pending or rows.order_by("-created_at", "-pk").first()
    if found is None:
        raise NotFound("approval")
    return found


def _reply(item: ConfirmResultIn) -> Reply:
    return Reply(
        decision="approve" if item.approved else "reject",
        edited_arguments=item.arguments,
        answer=item.answer,
    )


def _item(tool_call_id: str, outcome: Approval | ServiceError) -> ConfirmItemOut:
    if isinstance(outcome, ServiceError):
        return ConfirmItemOut(
            tool_call_id=tool_call_id, ok=False, error=ErrorInside(**body_of(outcome))
        )
    return ConfirmItemOut(tool_call_id=tool_call_id, ok=True)
