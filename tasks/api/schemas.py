"""What goes in and comes out of the API, as types; OpenAPI is made of them.

What comes in is strict: unknown fields and near-types ("yes" for true) are refused. Ids are plain
strings: one that is malformed is answered like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from django.contrib.auth.models import User
from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from tasks import profiles, quorum
from tasks.commands import Created
from tasks.events import wire_time
from tasks.models import ApiToken, Approval, Artifact, ModelProfile, Session, Task, Workspace
from tasks.standing import Standing

MAX_COMMENT = 10_000
Mode = Literal["ask", "deny", "read_only"]
WhenBusy = Literal["reject", "queue", "steer", "interrupt"]
Scope = Literal["read", "write", "approve"]


def stamp(moment: datetime | None) -> str | None:
    return None if moment is None else wire_time(moment)


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


# ── errors ────────────────────────────────────────────────────────────────────────────────────


class ErrorInside(BaseModel):
    code: str
    message: str
    details: Any = None


class ErrorOut(BaseModel):
    """Every refusal."""

    error: ErrorInside


def answers(status: int, body: Any, *refusals: int) -> dict[Any, Any]:
    """The answers of an operation, for ninja: one good one and the refusals it may meet."""
    return {status: body, frozenset({400, 401, 403, *refusals}): ErrorOut}


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────


class TaskIn(Strict):
    goal: str
    session_id: str | None = None
    workspace_id: str | None = None
    follow_up_of: str | None = None
    when_busy: WhenBusy = "reject"
    mode: Mode | None = None
    attachments: list[str] = Field(default_factory=list, max_length=50)
    """Paths of files in the workspace that the goal is about."""
    model: str | None = None
    """Id or name of a model profile; default: the session's."""


class CreatedOut(BaseModel):
    """A task that runs in the background: new, or the one that was steered."""

    id: str
    session_id: str
    status: str
    sequence: int
    """Of the event that this request stored."""
    position: int
    """The same on the session's stream."""
    stream_url: str

    @classmethod
    def of(cls, created: Created) -> CreatedOut:
        return cls(
            id=str(created.task_id),
            session_id=str(created.session_id),
            status=created.status,
            sequence=created.sequence,
            position=created.position,
            stream_url=created.stream_url,
        )


class LimitsIn(Strict):
    steps: int | None = Field(None, ge=1, le=10_000)
    seconds: float | None = Field(None, gt=0, le=7 * 24 * 3600)
    tokens: int | None = Field(None, ge=1, le=10**12)
    cost: float | None = Field(None, gt=0, le=10**6)


class RetryIn(Strict):
    model: str | None = None
    limits: LimitsIn | None = None


class MessageIn(Strict):
    text: str
    delivery: Literal["queue", "steer"]


class TaskOut(BaseModel):
    id: str
    session_id: str
    goal: str
    status: str
    trigger: str
    mode: str
    model_profile_id: str | None
    """Its own; null: its session's."""
    follow_up_of: str | None
    run: int
    queue_position: int | None
    """While it is queued: its place in the server's line, the next one at 1."""
    last_sequence: int
    cancel_requested_at: str | None
    final_answer: str
    error: Any
    steps: int
    usage: dict[str, Any]
    cost: float | None
    worker: str | None
    """host:pid of the process that runs it, while one does."""
    created_at: str | None
    started_at: str | None
    finished_at: str | None
    stream_url: str

    @classmethod
    def of(cls, task: Task, place: int | None = None) -> TaskOut:
        return cls(
            id=str(task.id),
            session_id=str(task.session_id),
            goal=task.goal,
            status=task.status,
            trigger=task.trigger,
            mode=task.mode,
            model_profile_id=str(task.model_profile_id) if task.model_profile_id else None,
            follow_up_of=str(task.follow_up_of_id) if task.follow_up_of_id else None,
            run=task.run,
            queue_position=place,
            last_sequence=task.last_sequence,
            cancel_requested_at=stamp(task.cancel_requested_at),
            final_answer=task.final_answer,
            error=task.error,
            steps=task.steps,
            usage=task.usage,
            cost=None if task.cost is None else float(task.cost),
            worker=task.lease_worker or None,
            created_at=stamp(task.created_at),
            started_at=stamp(task.started_at),
            finished_at=stamp(task.finished_at),
            stream_url=stream_url(task.id),
        )


def stream_url(task_id: object) -> str:
    return f"/api/tasks/{task_id}/stream"


class TaskList(BaseModel):
    items: Sequence[TaskOut]
    next: str | None


class EventOut(BaseModel):
    """A stored event; docs/events.md has the payload of each type."""

    sequence: int
    position: int
    type: str
    task_id: str
    created_at: str
    payload: dict[str, Any]


class EventList(BaseModel):
    items: Sequence[EventOut]
    next: int | None


# ── artifacts ─────────────────────────────────────────────────────────────────────────────────


class ArtifactOut(BaseModel):
    id: str
    task_id: str
    path: str
    size: int
    sha256: str
    media_type: str
    created_at: str | None
    url: str
    """Downloads it."""
    view_url: str
    """A page that shows it, if it is text."""

    @classmethod
    def of(cls, artifact: Artifact) -> ArtifactOut:
        return cls(
            id=str(artifact.pk),
            task_id=str(artifact.task_id),
            path=artifact.path,
            size=artifact.size,
            sha256=artifact.sha256,
            media_type=artifact.media_type,
            created_at=stamp(artifact.created_at),
            url=f"/api/artifacts/{artifact.pk}",
            view_url=f"/artifacts/{artifact.pk}/view",
        )


class ArtifactList(BaseModel):
    items: Sequence[ArtifactOut]
    next: None


# ── approvals ─────────────────────────────────────────────────────────────────────────────────


class ReplyIn(Strict):
    decision: Literal["approve", "reject"]
    edited_arguments: dict[str, Any] | None = None
    answer: str = Field("", max_length=MAX_COMMENT)
    comment: str = Field("", max_length=MAX_COMMENT)
    scope: Literal["once", "task", "session", "always"] = "once"
    """How far it reaches; the approval says which scopes it offers."""


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


class InboxItem(ApprovalOut):
    """An approval with what a list of many sessions needs to say of it."""

    session_title: str
    workspace_id: str
    workspace_name: str
    trigger: str
    notices: int
    """How often people were told of it: 1 once it was asked, then each reminder."""
    can_decide: bool
    can_approve: bool
    """False: you may reject it, but somebody else has to approve it."""

    @classmethod
    def with_place(cls, approval: Approval, *, can_decide: bool, can_approve: bool) -> InboxItem:
        session = approval.task.session
        return cls(
            **ApprovalOut.of(approval).model_dump(),
            session_title=session.title,
            workspace_id=str(session.workspace_id),
            workspace_name=session.workspace.name,
            notices=approval.notices,
            trigger=approval.task.trigger,
            can_decide=can_decide,
            can_approve=can_approve,
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


# ── sessions and workspaces ───────────────────────────────────────────────────────────────────


class SessionIn(Strict):
    workspace_id: str | None = None
    title: str = Field("", max_length=200)


class SessionPatch(Strict):
    title: str | None = Field(None, max_length=200)
    archived: bool | None = None
    model_profile_id: str | None = None
    """Which model its tasks ask; null: the default one."""
    mode: Mode | Literal[""] | None = None
    """Tightens the mode of its tasks; empty: as workspace and server say."""


class HandOverIn(Strict):
    username: str


class ForkIn(Strict):
    task_id: str
    sequence: int = Field(ge=1, le=2**63 - 1)


class ForkedFrom(BaseModel):
    task_id: str
    sequence: int | None


class SessionTask(BaseModel):
    """The task that a session's state is about: one that is not finished, else the newest."""

    id: str
    status: str
    trigger: str
    steps: int


class SessionOut(BaseModel):
    id: str
    title: str
    workspace_id: str
    workspace_name: str
    owner: str
    state: str
    """needs_you, running, queued, done, failed, stopped, limit, or empty: no task yet"""
    waiting: int
    """Decisions that it waits for."""
    task: SessionTask | None
    archived: bool
    model_profile_id: str | None
    mode: str
    last_position: int
    forked_from: ForkedFrom | None
    created_at: str | None
    updated_at: str | None
    stream_url: str

    @classmethod
    def of(cls, session: Session, standing: Standing) -> SessionOut:
        forked = None
        if session.forked_from_id:
            forked = ForkedFrom(
                task_id=str(session.forked_from_id), sequence=session.forked_at_sequence
            )
        return cls(
            id=str(session.id),
            title=session.title,
            workspace_id=str(session.workspace_id),
            workspace_name=session.workspace.name,
            owner=session.owner.get_username(),
            state=standing.state,
            waiting=standing.waiting,
            task=_session_task(standing.task),
            archived=session.archived,
            model_profile_id=str(session.model_profile_id) if session.model_profile_id else None,
            mode=session.mode,
            last_position=session.last_position,
            forked_from=forked,
            created_at=stamp(session.created_at),
            updated_at=stamp(session.updated_at),
            stream_url=f"/api/sessions/{session.id}/stream",
        )


def _session_task(task: Task | None) -> SessionTask | None:
    if task is None:
        return None
    return SessionTask(id=str(task.pk), status=task.status, trigger=task.trigger, steps=task.steps)


class SessionList(BaseModel):
    items: Sequence[SessionOut]
    next: str | None


class RunningOut(BaseModel):
    session_id: str
    task_id: str
    status: str


class RunningList(BaseModel):
    items: Sequence[RunningOut]
    next: str | None = None


class MemberIn(Strict):
    role: Literal["viewer", "member", "approver"]


class MemberOut(BaseModel):
    username: str
    name: str
    role: str
    """owner, approver, member or viewer"""

    @classmethod
    def of(cls, user: User, role: str) -> MemberOut:
        username = user.get_username()
        return cls(username=username, name=user.get_full_name() or username, role=role)


class MemberList(BaseModel):
    items: Sequence[MemberOut]
    next: str | None


class WorkspaceOut(BaseModel):
    id: str
    name: str
    role: str
    """owner, approver, member or viewer"""

    @classmethod
    def of(cls, workspace: Workspace, role: str) -> WorkspaceOut:
        return cls(id=str(workspace.id), name=workspace.name, role=role)


class WorkspaceList(BaseModel):
    items: Sequence[WorkspaceOut]
    next: str | None


# ── models ────────────────────────────────────────────────────────────────────────────────────


class PricesOut(BaseModel):
    """Per million tokens."""

    input: float
    cached: float | None
    """Of input that the provider had cached; null: as other input."""
    output: float
    currency: str


class ModelOut(BaseModel):
    id: str
    name: str
    model: str
    context_size: int
    prices: PricesOut | None
    is_default: bool

    @classmethod
    def of(cls, profile: ModelProfile) -> ModelOut:
        prices = profiles.prices_of(profile)
        return cls(
            id=str(profile.pk),
            name=profile.name,
            model=profile.model,
            context_size=profiles.context_of(profile),
            prices=None
            if prices is None
            else PricesOut(
                input=prices.input,
                cached=prices.cached,
                output=prices.output,
                currency=profile.currency,
            ),
            is_default=profile.is_default,
        )


class ModelList(BaseModel):
    items: Sequence[ModelOut]
    next: str | None


class UsageSums(BaseModel):
    calls: int
    seconds: float
    tokens: int
    """Fresh work: without the input that providers had cached."""
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: float | None
    """null: no price of any call is known."""
    complete: bool
    """False: some calls have no price and are not in `cost`."""
    estimated: bool
    """Some tokens were counted by Pilothouse, because the provider did not say."""


class UsageItem(UsageSums):
    key: str
    """The day, or the id of the session or user."""
    name: str


class UsageOut(BaseModel):
    by: str
    since: str
    until: str
    currency: str
    items: Sequence[UsageItem]
    next: str | None = None
    total: UsageSums


# ── tokens ────────────────────────────────────────────────────────────────────────────────────


class TokenIn(Strict):
    name: str = Field("", max_length=100)
    scopes: list[Scope] | None = Field(None, min_length=1)
    """Default: what the caller has."""
    expires_in_days: int | None = Field(None, ge=1, le=36_500)


class TokenOut(BaseModel):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: str | None
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None

    @staticmethod
    def of(token: ApiToken) -> TokenOut:
        return TokenOut(
            id=token.pk,
            name=token.name,
            prefix=token.prefix,
            scopes=token.scopes,
            created_at=stamp(token.created_at),
            expires_at=stamp(token.expires_at),
            last_used_at=stamp(token.last_used_at),
            revoked_at=stamp(token.revoked_at),
        )


class NewTokenOut(TokenOut):
    token: str
    """Shown this once."""


class TokenList(BaseModel):
    items: Sequence[TokenOut]
    next: str | None


# ── the chat API ──────────────────────────────────────────────────────────────────────────────


class ChatIn(Strict):
    session_id: str
    text: str


class ChatOut(BaseModel):
    ok: bool
    task_id: str | None


class ConfirmResultIn(Strict):
    tool_call_id: str
    approved: bool
    arguments: dict[str, Any] | None = None
    answer: str = Field("", max_length=MAX_COMMENT)


class ConfirmIn(Strict):
    session_id: str
    results: list[ConfirmResultIn] = Field(min_length=1, max_length=100)


class ConfirmItemOut(BaseModel):
    tool_call_id: str
    ok: bool
    error: ErrorInside | None = None


class ConfirmOut(BaseModel):
    ok: bool
    results: Sequence[ConfirmItemOut]
