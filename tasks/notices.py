"""Messages to people outside the pages about questions that wait: who gets them, and what became of each.

An approval is told of once when it is asked, and again at each reminder. The rows are the queue:
several servers may look at once, a message is sent by one of them, and again if that one died.
Whatever goes wrong here, the run knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from agent.text import clean, cut
from tasks import quorum, waiting
from tasks.access import APPROVERS
from tasks.conf import conf
from tasks.models import Approval, Notice

MOST_AT_ONCE = 50
CLAIM_SECONDS = 120
"""Longer than any sending; then another server may try."""
ATTEMPTS = 6
FIRST_PAUSE_SECONDS = 10
PAUSE_GROWS = 4
MAX_ERROR = 500


def anything_due(now: datetime | None = None) -> bool:
    """One look, for a loop that has mostly nothing to do."""
    now = now or timezone.now()
    return _told_next(now).exists() or _sendable(now).exists()


def fan_out(now: datetime | None = None) -> None:
    """Command: questions whose moment has come become messages."""
    now = now or timezone.now()
    for approval in _told_next(now).select_related("task__session__workspace")[:MOST_AT_ONCE]:
        mine = Approval.objects.filter(pk=approval.pk, notify_at=approval.notify_at)
        following = waiting.next_reminder(approval, now)
        if mine.update(notify_at=following, notices=F("notices") + 1):
            Notice.objects.bulk_create(_messages(approval))


def _told_next(now: datetime) -> QuerySet[Approval]:
    pending = Approval.objects.filter(status=Approval.Status.PENDING, notify_at__lte=now)
    return pending.filter(Q(expires_at=None) | Q(expires_at__gt=now)).order_by("notify_at")


def _messages(approval: Approval) -> Iterable[Notice]:
    settings, reminder = conf(), approval.notices
    if settings.notify_url:
        parts = urlsplit(settings.notify_url)
        yield Notice(
            approval=approval,
            channel=Notice.Channel.WEBHOOK,
            reminder=reminder,
            address=f"{parts.scheme}://{parts.hostname}",
        )
    if settings.mail_from:
        for user in recipients(approval):
            yield Notice(
                approval=approval,
                channel=Notice.Channel.MAIL,
                reminder=reminder,
                user=user,
                address=user.email,
            )


def recipients(approval: Approval) -> list[User]:
    """Who has an address and may say yes now: of the workspace, or of the group that it demands."""
    session = approval.task.session
    key = quorum.group_pattern(approval.capability)
    if key is not None:
        may = Q(groups__name=conf().approver_groups[key])
    else:
        workspace = session.workspace
        roles = Q(memberships__workspace=workspace, memberships__role__in=APPROVERS)
        may = Q(pk__in=[session.owner_id, workspace.owner_id]) | roles
    voted = [vote["user_id"] for vote in approval.votes]
    users = User.objects.filter(may, is_active=True).exclude(email="").exclude(pk__in=voted)
    return [
        user
        for user in users.distinct().order_by("pk")
        if quorum.refusal(approval, quorum.rights_of(user.pk)) is None
    ]


# ── sending ───────────────────────────────────────────────────────────────────────────────────


def claim(now: datetime | None = None) -> list[Notice]:
    """Command: messages that this process sends now. What is decided needs no message."""
    now = now or timezone.now()
    over = _sendable(now).exclude(approval__status=Approval.Status.PENDING)
    over.update(status=Notice.Status.DROPPED)
    related = ("approval__task__session__workspace", "user")
    found = list(_sendable(now).select_related(*related)[:MOST_AT_ONCE])
    until = now + timedelta(seconds=CLAIM_SECONDS)
    return [notice for notice in found if _take(notice, until)]


def _take(notice: Notice, until: datetime) -> bool:
    mine = Notice.objects.filter(pk=notice.pk, next_at=notice.next_at)
    return bool(mine.update(next_at=until, attempts=F("attempts") + 1))


def _sendable(now: datetime) -> QuerySet[Notice]:
    waiting_rows = Notice.objects.filter(status=Notice.Status.PENDING, next_at__lte=now)
    return waiting_rows.order_by("next_at", "pk")


def settle(notice_id: UUID, problem: str = "", now: datetime | None = None) -> None:
    """Command: it was sent; or it is tried again, with growing pauses, so many times."""
    notice, now = Notice.objects.get(pk=notice_id), now or timezone.now()
    notice.error = cut(clean(problem), MAX_ERROR)
    if not problem:
        notice.status, notice.sent_at = Notice.Status.SENT, now
    elif notice.attempts >= ATTEMPTS:
        notice.status = Notice.Status.FAILED
    else:
        pause = FIRST_PAUSE_SECONDS * PAUSE_GROWS ** (notice.attempts - 1)
        notice.next_at = now + timedelta(seconds=pause)
    notice.save(update_fields=["status", "sent_at", "next_at", "error"])
