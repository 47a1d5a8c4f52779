"""People's answers to approvals: checked, shown again, then decided in one command.

An answer that lets a call run is held against the world as it is now: schema, policy, guard and
target. Refusals are `tasks.errors.ServiceError` and leave the approval pending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from agent.errors import AgentError
from agent.policy import Standing
from agent.text import clean, clean_json
from agent.toolbox import arguments_digest
from tasks import approvals, dispatch, waiting, wiring
from tasks.approvals import Evidence, Outcome, Reply
from tasks.commands import lease
from tasks.conf import conf
from tasks.errors import Conflict, Invalid, NotFound, ServiceError
from tasks.models import Approval, Task
from tasks.service import ring
from tasks.writer import writer


async def resolve(approval_id: UUID, user_id: int, reply: Reply, *, worker: str = "") -> Approval:
    """Answer an approval. The run goes on in the background (or in process `worker`).

    Refused edits and replies that make no sense are `Invalid`, and it stays pending; `Conflict`
    says `already_resolved`, `expired`, `stale` (with the successor), `cannot_run`, or that somebody
    else has to approve it. It may still be pending afterwards: two people must agree on some.
    """
    reply = _clean_reply(reply)
    approval, username = await sync_to_async(_load)(approval_id, user_id)
    approvals.check_reply(approval, reply)
    shown = edited = standing = None
    if approval.status == Approval.Status.PENDING and approvals.lets_run(approval, reply):
        if reply.edited_arguments is not None:
            edited = await _edited(approval, reply.edited_arguments)
        _check_previewed(reply, (edited or approval).target_digest)
        shown = await _shown(approval)
    asked_anew = shown is not None and shown.target_digest != approval.target_digest
    if approval.status == Approval.Status.PENDING and reply.scope != "once" and not asked_anew:
        standing = await _standing(approval, reply)
    answer = partial(
        approvals.resolve,
        approval_id,
        user_id,
        username,
        reply,
        shown=shown,
        edited=edited,
        standing=standing,
    )
    command = partial(_resolve, answer, worker)
    outcome = await writer.run(command)
    if outcome.successor is not None:
        raise approvals.stale(outcome.successor)
    if outcome.wakes and not worker:
        await ring(approval.task_id)
    return outcome.approval


async def resolve_many(
    user_id: int, replies: Sequence[tuple[UUID, Reply]]
) -> list[Approval | ServiceError]:
    """Several answers in one request; each stands or falls alone."""
    results: list[Approval | ServiceError] = []
    for approval_id, reply in replies:
        try:
            results.append(await resolve(approval_id, user_id, reply))
        except ServiceError as refusal:
            results.append(refusal)
    return results


async def preview(approval_id: UUID, edited_arguments: dict[str, Any]) -> Evidence:
    """What an edited call would do. Changes nothing."""
    approval, _ = await sync_to_async(_load)(approval_id, None)
    if approval.status != Approval.Status.PENDING:
        raise Conflict("already_resolved", f"It is {approval.status}.")
    return await _edited(approval, _clean_arguments(edited_arguments))


async def snooze(approval_id: UUID, username: str, seconds: float | None = None) -> Approval:
    """It waits for so long from now, or for as long as a new question. Conflict once it is over."""
    wanted = conf().approval_ttl_seconds if seconds is None else seconds
    return await writer.run(partial(waiting.snooze, approval_id, username, wanted))


def _clean_reply(reply: Reply) -> Reply:
    edited = reply.edited_arguments
    return replace(
        reply,
        comment=clean(reply.comment),
        answer=clean(reply.answer),
        edited_arguments=None if edited is None else _clean_arguments(edited),
    )


def _clean_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        cleaned: dict[str, Any] = clean_json(arguments)
    except ValueError as error:
        raise Invalid("invalid", str(error), {"edited_arguments": str(error)}) from error
    return cleaned


async def _edited(approval: Approval, arguments: dict[str, Any]) -> Evidence:
    """Edited arguments take the whole way again: schema, policy, guard."""
    kit = await sync_to_async(wiring.kit_for)(approval.task)
    problem = kit.judge.toolbox.problem(approval.tool, arguments)
    if problem is not None:
        raise Invalid("invalid_arguments", problem, {"edited_arguments": problem})
    await kit.judge.refresh()
    decision = await kit.judge.decide(approval.tool, arguments)
    if decision.decision == "deny":
        raise Invalid("refused", decision.reason, {"edited_arguments": decision.reason})
    try:
        found = await _evidence(kit, approval.tool, arguments)
        standing = await kit.judge.standing(approval.tool, arguments, decision)
        return replace(found, standing="" if standing is None else standing.says)
    except AgentError as refusal:
        raise Invalid("refused", str(refusal), {"edited_arguments": str(refusal)}) from refusal


def _check_previewed(reply: Reply, target_digest: str) -> None:
    """An edited call may be about another file than the card's, which nobody else looks after; of
    the card's own call somebody may say what they saw, too."""
    if reply.previewed and reply.previewed != target_digest:
        message = "What the call would change is not what you were shown any more. Look again."
        raise Invalid("preview_changed", message, {"target_digest": message})


async def _shown(approval: Approval) -> Evidence:
    kit = await sync_to_async(wiring.kit_for)(approval.task)
    try:
        return await _evidence(kit, approval.tool, approval.arguments)
    except AgentError as refusal:
        message = f"This call cannot run any more: {refusal} Reject it, or ask for another."
        raise Conflict("cannot_run", message) from refusal


async def _standing(approval: Approval, reply: Reply) -> Standing:
    """What the rule that the reply leaves behind would fit: the call as it was decided."""
    judge = (await sync_to_async(wiring.kit_for)(approval.task)).judge
    edited = reply.edited_arguments
    arguments = approval.arguments if edited is None else edited
    await judge.refresh()
    decision = await judge.decide(approval.tool, arguments)
    standing = await judge.standing(approval.tool, arguments, decision)
    if standing is None:
        message = "Calls like this one are always asked about: only `once` is possible."
        raise Invalid("invalid", message, {"scope": message})
    if edited is None and standing.says != approval.standing:
        message = (
            f"It would count for {standing.says} by now, and the card says {approval.standing}: "
            "only `once` is possible."
        )
        raise Invalid("invalid", message, {"scope": message})
    return standing


async def _evidence(kit: wiring.Kit, tool: str, arguments: dict[str, Any]) -> Evidence:
    found = await kit.judge.toolbox.preview(tool, arguments, kit.judge.context(tool))
    return Evidence(
        arguments_digest=arguments_digest(tool, arguments),
        target_digest=found.target_digest,
        diff=found.diff,
    )


def _load(approval_id: UUID, user_id: int | None) -> tuple[Approval, str]:
    related = "task__session__workspace"
    approval = Approval.objects.select_related(related).filter(pk=approval_id).first()
    if approval is None:
        raise NotFound("approval")
    name = User.objects.get(pk=user_id).get_username() if user_id is not None else ""
    return approval, name


def _resolve(answer: Callable[[], Outcome], worker: str) -> Outcome:
    outcome = answer()
    if worker and outcome.wakes:
        # The answering process goes on itself; nobody else begins while its lease lasts. Only if
        # nobody has begun: a repeated answer must not take a lease from who works on it.
        free = Q(lease_expires_at=None) | Q(lease_expires_at__lte=timezone.now())
        Task.objects.filter(
            free, pk=outcome.approval.task_id, status=Task.Status.WAITING_APPROVAL
        ).update(**lease(worker))
    elif outcome.wakes:
        dispatch.offer_answered(outcome.approval.task_id)
    return outcome
