"""Policy rules in force, and what they and the modes make of each tool."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pydantic import BaseModel

from tasks.api.schemas.common import stamp
from tasks.models import PolicyRule
from tasks.policy_in_force import InSession, Judged, ModeSource, Source, source_of


class RuleOut(BaseModel):
    """One rule in force. An empty pattern fits everything."""

    id: str
    scope: str
    """global, workspace, session or task"""
    workspace_id: str | None
    session_id: str | None
    task_id: str | None
    decision: str
    """allow, ask or deny"""
    capability: str
    tool: str
    path: str
    host: str
    command: str
    exact_call: bool
    """It fits one call with exactly its arguments."""
    priority: int
    final: bool
    expires_at: str | None
    max_uses: int | None
    used: int
    note: str
    made_by: str
    made_from: str | None
    """The approval whose answer made it; null: an administrator did."""
    created_at: str | None
    can_revoke: bool

    @classmethod
    def of(cls, rule: PolicyRule, *, can_revoke: bool) -> RuleOut:
        same = {name: getattr(rule, name) for name in _SAME}
        return cls(
            **same,
            id=str(rule.pk),
            workspace_id=_id(rule.workspace_id),
            session_id=_id(rule.session_id),
            task_id=_id(rule.task_id),
            exact_call=bool(rule.digest),
            expires_at=stamp(rule.expires_at),
            made_by=rule.made_by.get_username(),
            made_from=_id(rule.made_from_id),
            created_at=stamp(rule.created_at),
            can_revoke=can_revoke,
        )


_SAME = (
    *("scope", "decision", "capability", "tool", "path", "host", "command"),
    *("priority", "final", "max_uses", "used", "note"),
)


def _id(found: UUID | None) -> str | None:
    return None if found is None else str(found)


class RuleList(BaseModel):
    items: Sequence[RuleOut]
    next: str | None


class ToolPolicyOut(BaseModel):
    """What becomes of a call of this tool which no narrower rule is about."""

    name: str
    capability: str
    decision: str
    """allow, ask or deny"""
    source: Source
    rule: str
    """The same text as on the call's event."""
    rule_id: str | None
    reason: str
    unattended: str
    """The decision for schedules and webhooks."""
    approvers: str
    """The group whose members alone approve; empty: whoever may decide."""
    another_person: bool
    """Whoever asked for the task does not approve."""
    votes: int
    """How many people must agree."""

    @classmethod
    def of(cls, tool: Judged) -> ToolPolicyOut:
        decided, demands = tool.watched, tool.demands
        return cls(
            name=tool.name,
            capability=tool.capability,
            decision=decided.decision,
            source=source_of(decided),
            rule=decided.rule,
            rule_id=decided.rule_id or None,
            reason=decided.reason,
            unattended=tool.unattended.decision,
            approvers=demands.group,
            another_person=demands.another_person,
            votes=demands.votes,
        )


class PolicyOut(BaseModel):
    """What the tasks of a session may do."""

    mode: str
    mode_of: ModeSource
    """Who says so."""
    unattended_mode: str
    """The mode for schedules and webhooks."""
    tools: Sequence[ToolPolicyOut]

    @classmethod
    def of(cls, policy: InSession) -> PolicyOut:
        return cls(
            mode=policy.mode,
            mode_of=policy.mode_of,
            unattended_mode=policy.unattended_mode,
            tools=[ToolPolicyOut.of(tool) for tool in policy.tools],
        )
