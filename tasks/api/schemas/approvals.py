"""Questions to people, their answers, and the list of what waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from tasks import quorum
from tasks.access import Part
from tasks.api.schemas.common import MAX_COMMENT, ErrorInside, Strict, stamp
from tasks.models import Approval


class ReplyIn(Strict):
    decision: Literal["approve", "reject"]
    edited_arguments: dict[str, Any] | None = None
    answer: str = Field("", max_length=MAX_COMMENT)
    comment: str = Field("", max_length=MAX_COMMENT)
    scope: Literal["once", "task", "session", "always"] = "once"
    """How far it reaches; the approval says which scopes it offers."""
    target_digest: str = Field("", max_length=64)
    """With edited arguments: that of their preview. 400 `preview_changed` if it is another by now."""


class BatchReplyIn(ReplyIn):
    approval_id: str = Field(validation_alias=AliasChoices("approval_id", "id"))


class BatchIn(Strict):
    results: list[BatchReplyIn] = Field(min_length=1, max_length=100)


class SnoozeIn(Strict):
    seconds: float | None = Field(None, ge=1, le=7 * 24 * 3600)
    """How long from now; default: as long as a new question waits."""


class PreviewIn(Strict):
    edited_arguments: dict[str, Any]


class PreviewOut(BaseModel):
    diff: str
    standing: str
    """What a rule of a wider scope than once would fit; empty: there is none."""
    arguments_digest: str
    target_digest: str


class VoteOut(BaseModel):
    """One person's yes; whoever agrees sends the same `edited_arguments`."""

    by: str
    at: str
    comment: str
    edited_arguments: Any


class ApprovalOut(BaseModel):
    id: str
    task_id: str
    session_id: str
    kind: str
    step: int
    tool_call_id: str
    name: str
    arguments: Any
    capability: str
    risk: str
    reason: str
    rule: str
    diff: str
    options: list[Any]
    scopes: list[str]
    """How far an answer may reach: once, task, session, always (a rule of the workspace)."""
    standing: str
    """What such a rule would fit, e.g. `write_file on notes/a.md`; empty with `once` alone."""
    arguments_digest: str
    target_digest: str
    created_at: str | None
    expires_at: str | None
    status: str
    votes: Sequence[VoteOut]
    """Yeses so far, while more are needed."""
    votes_needed: int
    resolved_by: str | None
    resolved_at: str | None
    comment: str
    answer: str
    edited_arguments: Any
    scope: str
    replaced_by: str | None

    @classmethod
    def of(cls, approval: Approval) -> ApprovalOut:
        same = {name: getattr(approval, name) for name in _SAME_IN_APPROVAL}
        resolver = approval.resolved_by
        return cls(
            **same,
            id=str(approval.id),
            task_id=str(approval.task_id),
            session_id=str(approval.task.session_id),
            name=approval.tool,
            scopes=approval.scopes or ["once"],
            created_at=stamp(approval.created_at),
            expires_at=stamp(approval.expires_at),
            votes=[VoteOut(**vote) for vote in approval.votes],
            votes_needed=quorum.votes_needed(approval.capability),
            resolved_by=None if resolver is None else resolver.get_username(),
            resolved_at=stamp(approval.resolved_at),
            replaced_by=str(approval.replaced_by_id) if approval.replaced_by_id else None,
        )


_SAME_IN_APPROVAL = (
    *("kind", "step", "tool_call_id", "arguments", "capability", "risk", "reason", "rule", "diff"),
    *("options", "arguments_digest", "target_digest", "status", "comment", "answer"),
    *("edited_arguments", "scope", "standing"),
)


class DemandsOut(BaseModel):
    """What must be true of whoever approves such calls."""

    group: str | None
    """Its members alone."""
    another_person: bool
    """Not whoever asked for the task."""
    votes: int
    """So many people."""


class ApprovalForYou(ApprovalOut):
    """An approval and what you may do about it."""

    can_decide: bool
    can_approve: bool
    """False: you may reject it, but somebody else has to approve it."""
    allowed_scopes: Sequence[str]
    """Of `scopes`, those that you may choose: `always` is for who decides in the whole workspace."""
    demands: DemandsOut

    @classmethod
    def to(cls, approval: Approval, part: Part) -> ApprovalForYou:
        return cls(**ApprovalOut.of(approval).model_dump(), **told(part))


def told(part: Part) -> dict[str, Any]:
    demands = part.demands
    return {
        "can_decide": part.can_decide,
        "can_approve": part.can_approve,
        "allowed_scopes": part.scopes,
        "demands": DemandsOut(
            group=demands.group or None,
            another_person=demands.another_person,
            votes=demands.votes,
        ),
    }


class InboxItem(ApprovalForYou):
    """An approval with what a list of many sessions needs to say of it."""

    session_title: str
    workspace_id: str
    workspace_name: str
    trigger: str
    trigger_name: str
    """Of the schedule or webhook, if it was one."""
    notices: int
    """How often people were told of it: 1 once it was asked, then each reminder."""

    @classmethod
    def with_place(cls, approval: Approval, part: Part, trigger_name: str) -> InboxItem:
        session = approval.task.session
        return cls(
            **ApprovalOut.of(approval).model_dump(),
            **told(part),
            session_title=session.title,
            workspace_id=str(session.workspace_id),
            workspace_name=session.workspace.name,
            notices=approval.notices,
            trigger=approval.task.trigger,
            trigger_name=trigger_name,
        )


class ApprovalList(BaseModel):
    items: Sequence[InboxItem]
    next: str | None


class ResolvedOut(BaseModel):
    """The run goes on in the background; not while the approval is still pending."""

    approval: ApprovalOut


class BatchItemOut(BaseModel):
    approval_id: str
    ok: bool
    approval: ApprovalOut | None = None
    error: ErrorInside | None = None


class BatchOut(BaseModel):
    """One result per reply, in their order."""

    results: Sequence[BatchItemOut]
