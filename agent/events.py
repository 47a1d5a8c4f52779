"""AgentEvent: the one vocabulary of what happened, from the provider's parser to the browser.

Each class is one wire type; its tag is the name on the wire and its fields are the payload. The
engine yields these, the event store keeps them, the stream sends them. Stored events get a
sequence when they are stored; live ones (`LiveEvent`) are watched and forgotten.

Fields typed `| UnsetType` are absent from the payload when they do not apply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from agent.messages import Usage


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of the vocabulary; never instantiated itself."""

    @property
    def type(self) -> str:
        return str(self.__struct_config__.tag)


class ErrorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An error for people."""

    code: str
    message: str
    hint: str = ""
    """What to do about it."""


# ── stored: the life of the task ──────────────────────────────────────────────────────────────


class TaskCreated(Event, frozen=True, kw_only=True, tag="task_created"):
    goal: str
    session_id: str
    trigger: str
    follow_up_of: str | None = None
    by: str = ""
    """Who asked for it; older logs do not say."""


class TaskStarted(Event, frozen=True, kw_only=True, tag="task_started"):
    run: int
    reason: str
    """start, resume or recover"""
    model: str
    limits: dict[str, Any]
    mode: str


class TaskRecovered(Event, frozen=True, kw_only=True, tag="task_recovered"):
    reason: str
    previous_worker: str | None = None


class UserMessageAdded(Event, frozen=True, kw_only=True, tag="user_message"):
    message_id: str
    text: str
    by: str


class AgentCompleted(Event, frozen=True, kw_only=True, tag="agent_completed"):
    final_answer: str


class TaskCompleted(Event, frozen=True, kw_only=True, tag="task_completed"):
    pass


class TaskFailed(Event, frozen=True, kw_only=True, tag="task_failed"):
    error: ErrorInfo


class TaskCancelled(Event, frozen=True, kw_only=True, tag="task_cancelled"):
    by: str


class BudgetExceeded(Event, frozen=True, kw_only=True, tag="budget_exceeded"):
    which: str
    """steps, seconds, tokens or cost"""
    scope: str = "task"
    """task, session, user (one person in a day) or day (everybody in a day)"""
    used: float
    limit: float
    message: str


# ── stored: the model ─────────────────────────────────────────────────────────────────────────


class ModelCallStarted(Event, frozen=True, kw_only=True, tag="model_call_started"):
    step: int
    model: str
    attempt: int


class ModelCallRetried(Event, frozen=True, kw_only=True, tag="model_call_retried"):
    step: int
    attempt: int
    error: ErrorInfo
    delay_seconds: float


class ModelCallFinished(Event, frozen=True, kw_only=True, tag="model_call_finished"):
    step: int
    finish_reason: str
    usage: Usage
    cost: float | None
    duration_ms: int


class ReasoningMessage(Event, frozen=True, kw_only=True, tag="reasoning_message"):
    step: int
    block_id: str
    text: str
    provider_data: Any = UNSET


class AssistantMessageAdded(Event, frozen=True, kw_only=True, tag="assistant_message"):
    step: int
    block_id: str
    text: str
    partial: bool | UnsetType = UNSET
    """True when a cancel or a final failure cut it off."""
    provider_data: Any = UNSET


# ── stored: tool calls and approvals ──────────────────────────────────────────────────────────


class ToolCallRequested(Event, frozen=True, kw_only=True, tag="tool_call_requested"):
    """Stored for every call of a reply, valid or not."""

    step: int
    tool_call_id: str
    block_id: str
    index: int
    name: str
    arguments: dict[str, Any] | None
    raw_arguments: str | UnsetType = UNSET
    """What the model sent when that is not a JSON object; at most 8 KiB."""
    problem: str | UnsetType = UNSET
    """Why it cannot be executed, when it cannot."""
    capability: str
    risk: str
    decision: str
    """allow, ask or deny"""
    rule: str
    """What decided: the name of a rule, a default or a mode, and why."""
    rule_id: str | UnsetType = UNSET
    """The rule's, when one decided."""
    chain: list[str] | UnsetType = UNSET
    """Everything that was looked at on the way to the decision, when that is more than `rule`."""
    provider_data: Any = UNSET


class ToolCallStarted(Event, frozen=True, kw_only=True, tag="tool_call_started"):
    step: int
    tool_call_id: str


class ToolCallFinished(Event, frozen=True, kw_only=True, tag="tool_call_finished"):
    step: int
    tool_call_id: str
    ok: bool
    content: str
    """What the model reads."""
    details: dict[str, Any] = {}
    """What people read."""
    duration_ms: int = 0


class ApprovalRequired(Event, frozen=True, kw_only=True, tag="approval_required"):
    """The engine yields it without `approval_id` and `expires_at`; the store fills them in."""

    step: int
    kind: str
    """call, unknown_effect, question or limit"""
    tool_call_id: str
    name: str
    arguments: dict[str, Any]
    capability: str
    risk: str
    reason: str
    rule: str
    diff: str
    options: list[str]
    scopes: list[str] = msgspec.field(default_factory=lambda: ["once"])
    """How far an answer may reach: once, task, session, always."""
    standing: str = ""
    """What a rule of a wider scope would fit, for people; empty when only `once` is offered."""
    arguments_digest: str
    target_digest: str
    approval_id: str = ""
    expires_at: str | None = None
    replaces: str | UnsetType = UNSET
    """The approval that became stale, when this one is its successor."""


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One person's yes, where more than one is needed."""

    by: str
    at: str
    comment: str = ""
    edited_arguments: dict[str, Any] | None = None
    """Whoever agrees must send the same."""


class ApprovalUpdated(Event, frozen=True, kw_only=True, tag="approval_updated"):
    """Still pending: it waits longer, or one of the votes that it needs was given."""

    approval_id: str
    expires_at: str | None
    votes: list[Vote] = []
    by: str
    """Who changed it."""


class ApprovalResolved(Event, frozen=True, kw_only=True, tag="approval_resolved"):
    approval_id: str
    kind: str
    tool_call_id: str
    status: str
    """approved, rejected, expired, stale or cancelled"""
    answer: str | None = None
    edited_arguments: dict[str, Any] | None = None
    diff: str = ""
    arguments_digest: str = ""
    target_digest: str = ""
    resolved_by: str | None = None
    comment: str = ""
    scope: str = "once"
    replaced_by: str | UnsetType = UNSET


class ArtifactRecorded(Event, frozen=True, kw_only=True, tag="artifact_recorded"):
    artifact_id: str
    path: str
    size: int
    sha256: str


class ContextCompacted(Event, frozen=True, kw_only=True, tag="context_compacted"):
    """The model summarized the history up to a place; nothing of it leaves the log."""

    step: int
    from_task_id: str = ""
    """Where the covered part begins; a summary may reach back into earlier tasks."""
    from_sequence: int
    to_task_id: str = ""
    to_sequence: int
    """The last event that is covered; 0: that task from its beginning is not."""
    covered: int = 0
    """Entries of the folded history that the summary stands for."""
    summary: str
    kept: list[str] = []
    """People's words of the task under way that were covered: they stay as they were."""
    model: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    duration_ms: int = 0


class BudgetWarning(Event, frozen=True, kw_only=True, tag="budget_warning"):
    step: int
    which: str
    scope: str = "task"
    used: float
    limit: float


# ── live only ─────────────────────────────────────────────────────────────────────────────────


class AssistantDelta(Event, frozen=True, kw_only=True, tag="assistant_delta"):
    step: int
    block_id: str
    offset: int
    """Where `delta` starts in the block, in Unicode code points."""
    delta: str


class ReasoningDelta(Event, frozen=True, kw_only=True, tag="reasoning_delta"):
    step: int
    block_id: str
    offset: int
    delta: str


class ToolCallDelta(Event, frozen=True, kw_only=True, tag="tool_call_delta"):
    """`delta` is raw argument text, as the model writes it."""

    step: int
    block_id: str
    index: int
    name: str
    offset: int
    delta: str


class ToolProgress(Event, frozen=True, kw_only=True, tag="tool_progress"):
    tool_call_id: str
    text: str
    done: float | UnsetType = UNSET
    total: float | UnsetType = UNSET


Delta = AssistantDelta | ReasoningDelta | ToolCallDelta
LiveEvent = AssistantDelta | ReasoningDelta | ToolCallDelta | ToolProgress
StoredEvent = (
    TaskCreated
    | TaskStarted
    | TaskRecovered
    | UserMessageAdded
    | AgentCompleted
    | TaskCompleted
    | TaskFailed
    | TaskCancelled
    | BudgetExceeded
    | ModelCallStarted
    | ModelCallRetried
    | ModelCallFinished
    | ReasoningMessage
    | AssistantMessageAdded
    | ToolCallRequested
    | ToolCallStarted
    | ToolCallFinished
    | ApprovalRequired
    | ApprovalUpdated
    | ApprovalResolved
    | ArtifactRecorded
    | ContextCompacted
    | BudgetWarning
)
AgentEvent = StoredEvent | LiveEvent
Tell = Callable[[AgentEvent], Awaitable[None]]
"""Called with what happens; whoever calls goes on once it was heard."""

TERMINAL_TYPES = frozenset({"task_completed", "task_failed", "task_cancelled", "budget_exceeded"})
"""The four types after which a task's stream closes; nothing else closes it."""

MAX_DELTA_CHARS = 512
MAX_RAW_ARGUMENTS = 8 * 1024

_decoder: msgspec.json.Decoder[StoredEvent] = msgspec.json.Decoder(StoredEvent)


def from_payload(type_: str, payload: str) -> StoredEvent:
    """A stored row's type and payload text -> its event. Raises msgspec.DecodeError."""
    body = payload.strip()[1:]
    comma = "" if body.lstrip().startswith("}") else ","
    return _decoder.decode(f'{{"type":"{type_}"{comma}{body}')


def payload_of(event: AgentEvent) -> dict[str, Any]:
    """An event's payload: its fields without the type."""
    built: dict[str, Any] = msgspec.to_builtins(event)
    built.pop("type")
    return built
