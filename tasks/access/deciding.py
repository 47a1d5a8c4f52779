"""What one person may do about a question, so that a page offers that and nothing else.

The same judgement as `tasks.approvals.resolve` makes when the answer comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tasks import quorum
from tasks.access.principal import Principal
from tasks.access.reach import APPROVERS, visible_approvals, visible_workspaces
from tasks.models import Approval

ALWAYS = "always"


@dataclass(frozen=True, kw_only=True)
class Part:
    """Somebody's part in one approval."""

    can_decide: bool
    """They may reject it at least."""
    can_approve: bool
    scopes: tuple[str, ...]
    """How far their answer may reach; none for who may not decide."""
    demands: quorum.Demands
    """Of whoever approves."""


def parts_in(principal: Principal, approvals: Sequence[Approval]) -> dict[UUID, Part]:
    """By approval. Reads `approval.task`."""
    decided = _decided(principal, approvals)
    rights = quorum.Rights(user_id=principal.user_id, patterns=principal.decides)
    places = _places(principal, approvals)
    return {
        row.pk: Part(
            can_decide=row.pk in decided,
            can_approve=row.pk in decided and quorum.refusal(row, rights) is None,
            scopes=_scopes(row, row.workspace_id in places) if row.pk in decided else (),
            demands=quorum.demands_of(row.capability),
        )
        for row in approvals
    }


def _decided(principal: Principal, approvals: Sequence[Approval]) -> set[UUID]:
    if "approve" not in principal.scopes:
        return set()
    mine = visible_approvals(principal, APPROVERS)
    return set(mine.filter(pk__in=[row.pk for row in approvals]).values_list("pk", flat=True))


def _places(principal: Principal, approvals: Sequence[Approval]) -> set[UUID]:
    """Workspaces in which they decide everything, of those that an answer could be for."""
    asked = {row.workspace_id for row in approvals if ALWAYS in row.scopes}
    if not asked or principal.decides_everywhere:
        return asked
    found = visible_workspaces(principal, APPROVERS).filter(pk__in=asked)
    return set(found.values_list("pk", flat=True))


def _scopes(approval: Approval, in_workspace: bool) -> tuple[str, ...]:
    offered = approval.scopes or ["once"]
    return tuple(scope for scope in offered if scope != ALWAYS or in_workspace)
