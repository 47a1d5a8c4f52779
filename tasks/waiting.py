"""How long a question waits, and when people are reminded of it.

`PILOTHOUSE_REMIND_AT` lists the moments: below 1 a part of the time that it waits, else seconds. More
time begins a new stretch, with its own reminders.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from django.utils import timezone

from tasks import approvals, votes
from tasks.conf import conf
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
        approval.waits_since, approval.expires_at = now, longer
        approval.notify_at = next_reminder(approval, now)
        approval.save(update_fields=["waits_since", "expires_at", "notify_at"])
        votes.note_update(approval, username)
    return approval


def next_reminder(approval: Approval, after: datetime) -> datetime | None:
    """The first moment behind `after` at which people are told again; none once it is over."""
    until = approval.expires_at
    moments = [_moment(approval, value) for value in conf().remind_at]
    later = [
        moment
        for moment in moments
        if moment is not None and after < moment and (until is None or moment < until)
    ]
    return min(later, default=None)


def _moment(approval: Approval, value: float) -> datetime | None:
    since, until = approval.waits_since, approval.expires_at
    if value >= 1:
        return since + timedelta(seconds=value)
    return None if until is None else since + value * (until - since)
