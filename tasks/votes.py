"""Yeses to one approval, where two people must agree.

Votes are on the row until it is decided. They count together only when they are for the same thing;
a yes to something else begins anew, and whoever may not approve it any more has no vote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agent import events as vocabulary
from agent.events import ApprovalUpdated
from tasks import events, quorum
from tasks.events import wire_time
from tasks.models import Approval


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """As the row keeps it."""

    user_id: int
    by: str
    at: str
    comment: str
    edited_arguments: dict[str, Any] | None
    agreement: str
    """Equal for yeses to the same thing."""


def agreed(approval: Approval, vote: Vote, approves: Callable[[int], bool]) -> bool:
    """Inside a command: whether enough people say yes to the same thing now. Else the vote is kept.
    `approves`: may this user still approve it?"""
    before = msgspec.convert(approval.votes, list[Vote])
    alike = {each.user_id: each for each in before if each.agreement == vote.agreement}
    said_before = alike.pop(vote.user_id, None) is not None
    others = [each for each in alike.values() if approves(each.user_id)]
    if len(others) + 1 >= quorum.votes_needed(approval.capability):
        return True
    if not said_before:
        approval.votes = msgspec.to_builtins([*others, vote])
        approval.save(update_fields=["votes"])
        note_update(approval, vote.by)
    return False


def note_update(approval: Approval, by: str) -> None:
    """Inside a command that changed a pending approval: the event that says so."""
    updated = ApprovalUpdated(
        approval_id=str(approval.id),
        expires_at=wire_time(approval.expires_at) if approval.expires_at else None,
        votes=msgspec.convert(approval.votes, list[vocabulary.Vote]),
        by=by,
    )
    events.append(approval.task_id, [updated])
