"""Questions to people about single calls: asked, answered, expired, all inside commands.

An approval is for one call with those arguments against that target. Rows change from `pending`
exactly once, under the lock of their task's row; every change has its event in the same command.
(An approved one may still become `stale`, when its target changed before the call could run.)
The status of the task does not move here except to `waiting_approval`: a run begins only when
nothing is pending.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import msgspec
from django.utils import timezone

from agent.events import ApprovalRequired, ApprovalResolved, StoredEvent
from agent.policy import Standing
from agent.transcript import ABOUT_A_LIMIT
from tasks import access, dispatch, events, lifecycle, quorum, rules, votes
from tasks.conf import conf
from tasks.errors import Conflict, Invalid
from tasks.events import wire_time
from tasks.models import Approval, Task

UNKNOWN_EFFECT_ANSWERS = ("done", "retry")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a person says to an approval."""

    decision: str
    """approve or reject"""
    edited_arguments: dict[str, Any] | None = None
    answer: str = ""
    """For `unknown_effect`: done or retry. For `question`: what the person says."""
    comment: str = ""
    scope: str = "once"
    previewed: str = ""
    """The `target_digest` of what they saw, if they say so: of the preview of edited arguments, else
    of the card."""

    @property
    def digest(self) -> str:
        """Equal for equal replies: the same person may repeat one without harm."""
        body = msgspec.json.encode(
            [self.decision, self.edited_arguments, self.answer, self.comment, self.scope],
            order="sorted",
        )
        return hashlib.sha256(body).hexdigest()

    @property
    def approves(self) -> bool:
        return self.decision == "approve"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What an approving reply would do to the target as it is now."""

    arguments_digest: str
    target_digest: str
    diff: str
    standing: str = ""
    """What a rule of a wider scope would fit; empty: only `once` is possible."""


# ── asking ────────────────────────────────────────────────────────────────────────────────────


def ask(task_id: UUID, run: int, questions: Sequence[ApprovalRequired]) -> None:
    """Command: the run stops with these questions. A successor closes the approval it replaces."""
    asked: list[StoredEvent] = []
    rows: list[tuple[Approval, str | None]] = []
    for question, row_id in zip(questions, _ids(len(questions)), strict=True):
        old = question.replaces if isinstance(question.replaces, str) else None
        row = _new_row(task_id, question, row_id)
        if old is not None:
            asked.append(_close_stale(Approval.objects.get(pk=old), row.id))
        rows.append((row, old))
        asked.append(_asked(question, row))
    at = events.append(task_id, asked, fence=run).created_at
    for row, old in rows:
        _insert(row, at, replaces=old)
    lifecycle.move(task_id, to=Task.Status.WAITING_APPROVAL, run=run)


def _ids(count: int) -> list[UUID]:
    """Falling: what is asked together is of one moment, and the lists go by moment and id, newest
    first. So these stand in the order in which they are asked."""
    return sorted((uuid4() for _ in range(count)), reverse=True)


def _insert(row: Approval, at: datetime, replaces: str | UUID | None) -> None:
    """Row and event are of one moment: `tasks.evidence` compares them."""
    row.created_at = at
    row.save(force_insert=True)
    if replaces is not None:
        Approval.objects.filter(pk=replaces).update(replaced_by=row, resolved_at=at)


def _new_row(task_id: UUID, question: ApprovalRequired, row_id: UUID) -> Approval:
    return Approval(
        id=row_id,
        task_id=task_id,
        kind=question.kind,
        step=question.step,
        tool_call_id=question.tool_call_id,
        tool=question.name,
        capability=question.capability,
        risk=question.risk,
        arguments=question.arguments,
        arguments_digest=question.arguments_digest,
        target_digest=question.target_digest,
        diff=question.diff,
        options=question.options,
        scopes=question.scopes,
        standing=question.standing,
        reason=question.reason,
        rule=question.rule,
        expires_at=timezone.now() + timedelta(seconds=conf().approval_ttl_seconds),
    )


def _asked(question: ApprovalRequired, row: Approval) -> ApprovalRequired:
    return msgspec.structs.replace(
        question,
        approval_id=str(row.id),
        expires_at=wire_time(row.expires_at) if row.expires_at else None,
    )


def _close_stale(old: Approval, successor: UUID) -> ApprovalResolved:
    Approval.objects.filter(pk=old.pk).update(
        status=Approval.Status.STALE, resolved_at=timezone.now()
    )
    return ApprovalResolved(
        approval_id=str(old.id),
        kind=old.kind,
        tool_call_id=old.tool_call_id,
        status=Approval.Status.STALE.value,
        replaced_by=str(successor),
    )


# ── answering ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a reply led to."""

    approval: Approval
    successor: UUID | None = None
    """Set when the target had changed: nothing was decided, this one is asked instead."""
    wakes: bool = False
    """Nothing is pending any more: the task can go on."""


def resolve(
    approval_id: UUID,
    user_id: int,
    username: str,
    reply: Reply,
    *,
    shown: Evidence | None = None,
    edited: Evidence | None = None,
    standing: Standing | None = None,
) -> Outcome:
    """Command: the first reply wins.

    For a reply that lets the call run, `shown` is what the call as it was asked would do now (it
    must still be what the person saw) and `edited` the same for edited arguments. With a scope
    wider than once, `standing` is what the rule of that scope fits.

    Where two people must agree, the first yes is a vote, and it stays pending.

    Raises Conflict `already_resolved` (with the winner), `expired`, `not_an_approver` or
    `own_request`. A changed target is not raised, because its successor must be stored: see
    `Outcome.successor`.
    """
    approval = locked(approval_id)
    if approval.status != Approval.Status.PENDING:
        return _already(approval, user_id, reply)
    if approval.expires_at is not None and approval.expires_at <= timezone.now():
        raise Conflict("expired", "Nobody answered in time, so it counts as rejected.")
    if reply.approves and (refusal := quorum.refusal(approval, quorum.rights_of(user_id))):
        raise refusal
    if reply.scope == "always" and not access.decides_in_workspace(approval, user_id):
        message = "Only its owner and its approvers decide for a whole workspace. Choose less."
        raise Conflict("not_an_approver", message)
    if shown is not None and shown.target_digest != approval.target_digest:
        return _ask_anew(approval, shown)
    vote = _vote(user_id, username, reply, edited)
    if reply.approves and not votes.agreed(approval, vote, partial(access.may_approve, approval)):
        return Outcome(approval=approval)
    approval.status = Approval.Status.APPROVED if reply.approves else Approval.Status.REJECTED
    approval.resolved_by_id = user_id
    approval.comment = reply.comment
    approval.answer = reply.answer
    approval.edited_arguments = reply.edited_arguments
    approval.scope = reply.scope
    approval.reply_digest = reply.digest
    if edited is not None:
        approval.arguments_digest = edited.arguments_digest
        approval.target_digest = edited.target_digest
        approval.diff = edited.diff
    _store(approval, username)
    if standing is not None:
        rules.make_from(approval, standing, reply.scope, user_id)
    return Outcome(approval=approval, wakes=not _anything_pending(approval.task_id))


def _vote(user_id: int, username: str, reply: Reply, edited: Evidence | None) -> votes.Vote:
    """Equal agreement: the same call, against the same content if it was edited."""
    wanted = [reply.edited_arguments, reply.answer, reply.scope, edited and edited.target_digest]
    return votes.Vote(
        user_id=user_id,
        by=username,
        at=wire_time(timezone.now()),
        comment=reply.comment,
        edited_arguments=reply.edited_arguments,
        agreement=hashlib.sha256(msgspec.json.encode(wanted, order="sorted")).hexdigest(),
    )


def check_reply(approval: Approval, reply: Reply) -> None:
    """What can be refused without looking at the target. Raises Invalid."""
    if reply.decision not in {"approve", "reject"}:
        raise Invalid("invalid", "decision must be approve or reject.", {"decision": "unknown"})
    offered = approval.scopes or ["once"]
    if reply.scope not in offered:
        message = f"scope must be {' or '.join(offered)}."
        raise Invalid("invalid", message, {"scope": "not offered by this approval"})
    if reply.approves and approval.kind == Approval.Kind.UNKNOWN_EFFECT:
        if reply.answer not in UNKNOWN_EFFECT_ANSWERS:
            raise Invalid(
                "invalid",
                "Say whether it took effect: answer must be done or retry.",
                {"answer": "done or retry"},
            )
    elif reply.approves and approval.kind == Approval.Kind.QUESTION:
        if not reply.answer.strip():
            message = "Answer the question, or reject it."
            raise Invalid("invalid", message, {"answer": "empty"})
    elif reply.answer:
        raise Invalid("invalid", "This approval takes no answer.", {"answer": "not expected"})
    if reply.edited_arguments is not None and approval.kind != Approval.Kind.CALL:
        message = "The arguments of this call cannot be edited any more."
        raise Invalid("invalid", message, {"edited_arguments": "not expected"})
    if reply.edited_arguments is not None and not reply.approves:
        message = "Edited arguments go with approve."
        raise Invalid("invalid", message, {"edited_arguments": "not expected"})


def lets_run(approval: Approval, reply: Reply) -> bool:
    """Whether this reply means that the call will be executed."""
    if approval.tool_call_id.startswith(ABOUT_A_LIMIT):
        return False
    if approval.kind == Approval.Kind.QUESTION:
        return False
    return reply.approves and not (
        approval.kind == Approval.Kind.UNKNOWN_EFFECT and reply.answer == "done"
    )


def _ask_anew(approval: Approval, evidence: Evidence) -> Outcome:
    """The target changed since the question: it is asked again, with what would happen now."""
    question = ApprovalRequired(
        step=approval.step,
        kind=approval.kind,
        tool_call_id=approval.tool_call_id,
        name=approval.tool,
        arguments=approval.arguments,
        capability=approval.capability,
        risk=approval.risk,
        reason="The target changed after you were asked. "
        "This is the change against it as it is now.",
        rule=approval.rule,
        diff=evidence.diff,
        options=approval.options,
        scopes=approval.scopes,
        standing=approval.standing,
        arguments_digest=approval.arguments_digest,
        target_digest=evidence.target_digest,
        replaces=str(approval.id),
    )
    row = _new_row(approval.task_id, question, uuid4())
    closing = _close_stale(approval, row.id)
    at = events.append(approval.task_id, [closing, _asked(question, row)]).created_at
    _insert(row, at, replaces=approval.pk)
    approval.refresh_from_db()
    return Outcome(approval=approval, successor=row.id)


def _already(approval: Approval, user_id: int, reply: Reply) -> Outcome:
    if approval.resolved_by_id == user_id and approval.reply_digest == reply.digest:
        return Outcome(approval=approval, wakes=not _anything_pending(approval.task_id))
    if approval.status == Approval.Status.STALE:
        raise stale(approval.replaced_by_id)
    if approval.status == Approval.Status.EXPIRED:
        raise Conflict("expired", "Nobody answered in time, so it counts as rejected.")
    raise decided(approval)


def decided(approval: Approval) -> Conflict:
    winner = approval.resolved_by.get_username() if approval.resolved_by else None
    return Conflict(
        "already_resolved",
        f"It was {approval.status} before your answer" + (f" by {winner}." if winner else "."),
        {
            "status": approval.status,
            "resolved_by": winner,
            "resolved_at": wire_time(approval.resolved_at) if approval.resolved_at else None,
        },
    )


def stale(successor: UUID | None) -> Conflict:
    return Conflict(
        "stale",
        "The target changed after you were asked. It is asked again with the change as it is now.",
        {"approval_id": str(successor)},
    )


# ── without an answer ─────────────────────────────────────────────────────────────────────────


def expire_due(now: datetime | None = None) -> list[UUID]:
    """Command: questions that nobody answered in time count as rejected. The tasks concerned."""
    due = Approval.objects.filter(
        status=Approval.Status.PENDING, expires_at__lte=now or timezone.now()
    )
    tasks = []
    for approval_id in list(due.values_list("pk", flat=True)):
        approval = locked(approval_id)
        if approval.status == Approval.Status.PENDING:
            approval.status = Approval.Status.EXPIRED
            _store(approval, None)
            if not _anything_pending(approval.task_id):
                dispatch.offer_answered(approval.task_id)
            tasks.append(approval.task_id)
    return tasks


def cancel_open(task_id: UUID, username: str) -> list[StoredEvent]:
    """Inside a command that ends the task: its questions are void. Their events, not yet stored."""
    pending = list(Approval.objects.filter(task_id=task_id, status=Approval.Status.PENDING))
    Approval.objects.filter(pk__in=[approval.pk for approval in pending]).update(
        status=Approval.Status.CANCELLED, resolved_at=timezone.now()
    )
    return [
        ApprovalResolved(
            approval_id=str(approval.id),
            kind=approval.kind,
            tool_call_id=approval.tool_call_id,
            status=Approval.Status.CANCELLED.value,
            resolved_by=username,
        )
        for approval in pending
    ]


def locked(approval_id: UUID) -> Approval:
    """The task's row first: the same order as everywhere, so two commands cannot wait for each
    other."""
    task_id = Approval.objects.values_list("task_id", flat=True).get(pk=approval_id)
    Task.objects.select_for_update().get(pk=task_id)
    return Approval.objects.select_related("task").get(pk=approval_id)


def _anything_pending(task_id: UUID) -> bool:
    return Approval.objects.filter(task_id=task_id, status=Approval.Status.PENDING).exists()


def _store(approval: Approval, username: str | None) -> None:
    resolved = ApprovalResolved(
        approval_id=str(approval.id),
        kind=approval.kind,
        tool_call_id=approval.tool_call_id,
        status=str(approval.status),
        answer=approval.answer or None,
        edited_arguments=approval.edited_arguments,
        diff=approval.diff if approval.edited_arguments is not None else "",
        arguments_digest=approval.arguments_digest,
        target_digest=approval.target_digest,
        resolved_by=username,
        comment=approval.comment,
        scope=approval.scope,
    )
    approval.resolved_at = events.append(approval.task_id, [resolved]).created_at
    approval.save()
