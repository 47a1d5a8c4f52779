"""Policy rules: which are in force for a task, made from a card, used up, revoked.

Administrators write theirs in the admin; an answer to a card may leave one that is exactly as
narrow as the card said. Rows are never deleted: a revoked rule is disabled, and the audit has who.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast
from uuid import UUID

from channels.db import database_sync_to_async
from django.db import connection, transaction
from django.db.models import BooleanField, F, QuerySet
from django.db.models.expressions import RawSQL
from django.utils import timezone

from agent.policy import Rule, Scope, Standing, Verdict
from tasks import audit, quorum
from tasks.models import Approval, PolicyRule, Task
from tasks.statements import Rows
from tasks.writer import writer

FRESH_SECONDS = 0.5
"""A run reads the rules again when what it knows is older; what this process itself changed counts
at once."""
CARD_SCOPES = {
    "task": PolicyRule.Scope.TASK,
    "session": PolicyRule.Scope.SESSION,
    "always": PolicyRule.Scope.WORKSPACE,
}
"""What an answer's scope becomes."""


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where a task is: whose rules count for it."""

    workspace_id: UUID
    session_id: UUID | None = None
    task_id: UUID | None = None


def places_of(task: Task) -> Places:
    """Reads `task.session`: load it with the task."""
    return Places(
        workspace_id=task.session.workspace_id, session_id=task.session_id, task_id=task.pk
    )


def in_force(places: Places) -> list[Rule]:
    """Asks the database: not for the event loop."""
    rows = _in_force(places.workspace_id, places.session_id, places.task_id, timezone.now())
    return [as_rule(row) for row in rows if not _overruled(row)]


_TABLE = PolicyRule._meta.db_table
_LIVE = f"""({_TABLE}.enabled
    AND ({_TABLE}.expires_at IS NULL OR {_TABLE}.expires_at > %s)
    AND ({_TABLE}.max_uses IS NULL OR {_TABLE}.used < {_TABLE}.max_uses))"""
"""A rule that counts: enabled, not run out by now, not used up."""
# Made once: every run asks this all the time.
_in_force = Rows(
    PolicyRule,
    f"""WHERE (scope = 'global' OR workspace_id = %s OR session_id = %s OR task_id = %s) AND {_LIVE}
    ORDER BY created_at DESC, id DESC""",
)


def live() -> QuerySet[PolicyRule]:
    """Rules that count."""
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    return PolicyRule.objects.filter(RawSQL(_LIVE, [now], BooleanField()))  # noqa: S611 - our own


def _overruled(row: PolicyRule) -> bool:
    """A card's yes from before somebody demanded more of a yes to that capability."""
    yes = row.decision == PolicyRule.Decision.ALLOW and row.made_from_id is not None
    return yes and quorum.demanded(row.capability)


def as_rule(row: PolicyRule) -> Rule:
    """The engine's view of a row."""
    return Rule(
        id=str(row.pk),
        decision=cast(Verdict, row.decision),
        scope=cast(Scope, row.scope),
        capability=row.capability,
        tool=row.tool,
        path=row.path,
        host=row.host,
        command=row.command,
        digest=row.digest,
        priority=row.priority,
        final=row.final,
        from_card=row.made_from_id is not None,
        limited=row.max_uses is not None,
        label=row.note,
    )


@dataclass(kw_only=True)
class _Changes:
    """Counts what this process did to rules, so that its runs need not ask all the time."""

    count: int = 0


_changes = _Changes()


@dataclass
class InForce:
    """Reads the rules for one run; asks again only when they may have changed."""

    places: Places
    _read_at: float = field(default=float("-inf"), init=False)
    _seen: int = field(default=-1, init=False)
    _rules: Sequence[Rule] = field(default=(), init=False)

    async def __call__(self) -> Sequence[Rule]:
        now = asyncio.get_running_loop().time()
        if self._seen != _changes.count or now - self._read_at > FRESH_SECONDS:
            self._seen, self._read_at = _changes.count, now
            self._rules = await database_sync_to_async(in_force)(self.places)
        return self._rules


def changed() -> None:
    """Call it after rows were changed by hand: runs of this process look again."""
    transaction.on_commit(_count)


def _count() -> None:
    _changes.count += 1


# ── uses ──────────────────────────────────────────────────────────────────────────────────────


async def claim(rule_id: str) -> bool:
    """Take one use of a rule; False when there is none left. A crash right after it loses a use,
    never gives one more."""
    return await writer.run(partial(_claim, UUID(rule_id)))


def _claim(rule_id: UUID) -> bool:
    return live().filter(pk=rule_id).update(used=F("used") + 1) == 1


# ── from a card ───────────────────────────────────────────────────────────────────────────────


def make_from(approval: Approval, standing: Standing, scope: str, user_id: int) -> PolicyRule:
    """Inside the command that stores an answer: the rule of its scope."""
    task = Task.objects.select_related("session").get(pk=approval.task_id)
    kind = CARD_SCOPES[scope]
    approves = approval.status == Approval.Status.APPROVED
    rule = PolicyRule.objects.create(
        scope=kind,
        workspace_id=task.session.workspace_id if kind == PolicyRule.Scope.WORKSPACE else None,
        session_id=task.session_id if kind == PolicyRule.Scope.SESSION else None,
        task_id=task.pk if kind == PolicyRule.Scope.TASK else None,
        decision=PolicyRule.Decision.ALLOW if approves else PolicyRule.Decision.DENY,
        capability=standing.capability,
        tool=standing.tool,
        path=standing.path,
        host=standing.host,
        digest=standing.digest,
        made_by_id=user_id,
        made_from=approval,
        note=standing.says[:200],
    )
    note("made", rule, rule.made_by.get_username())
    return rule


def revoke(rule: PolicyRule, by: str) -> bool:
    """Command: it stops to count. False when it had stopped before."""
    if not PolicyRule.objects.filter(pk=rule.pk, enabled=True).update(enabled=False):
        return False
    note("revoked", rule, by)
    return True


def note(verb: str, rule: PolicyRule, by: str) -> None:
    """The audit's entry about a rule, in the same transaction."""
    after = {"decision": rule.decision, "scope": rule.scope} if verb == "made" else {}
    audit.record(
        audit.Change(
            action=f"rule.{verb}",
            by=by,
            object_type="rule",
            object_id=str(rule.pk),
            name=str(rule),
            before={"enabled": True} if verb == "revoked" else {},
            after=after or {"enabled": False},
        )
    )
    changed()
