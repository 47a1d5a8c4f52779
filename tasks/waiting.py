"""How long a question waits."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from django.utils import timezone

from tasks import approvals, votes
from tasks.errors import Conflict
from tasks.models import Approval


def snooze(approval_id: UUID, username: str, seconds: float) -> Approval:
    """Command: somebody wants more time. What it has already is not taken away."""
    approval = approvals.locked(approval_id)
    now, until = timezone.now(), approval.expires_at
    if approval.status != Approval.Status.PENDING:
        raise approvals.decided(approval)
    if until is not None and until <= now:
        raise Conflict("expired", "Nobody answered in time, so it counts as rejected.")
    longer = now + timedelta(seconds=seconds)
    if until is not None and until < longer:
        approval.expires_at = longer
        approval.save(update_fields=["expires_at"])
        votes.note_update(approval, username)
    return approval
