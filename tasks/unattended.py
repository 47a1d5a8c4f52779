"""What makes tasks while nobody watches (schedules, webhooks) does it in its owner's name, and only
as long as they could do it themselves: an owner who is inactive or has lost the workspace pauses it,
with a reason.
"""

from __future__ import annotations

from typing import Any

from tasks import access, audit
from tasks.models import Schedule, Webhook


def why_not(row: Schedule | Webhook) -> str:
    """Why its owner cannot have tasks made in their name; empty when they can."""
    owner = row.owner
    if not owner.is_active:
        return f"Its owner {owner.get_username()} is not active."
    usable = access.visible_workspaces(access.principal_of(owner), access.WRITERS)
    if not usable.filter(pk=row.workspace_id).exists():
        return f"Its owner {owner.get_username()} may not work in its workspace any more."
    return ""


def pause(row: Schedule | Webhook, reason: str, **more: Any) -> None:
    """Command: it makes nothing until somebody switches it on again; `more` are columns to set."""
    rows = type(row)._default_manager.filter(pk=row.pk, enabled=True)
    if not rows.update(enabled=False, paused_reason=reason, **more):
        return  # another one got there first
    kind = str(row._meta.model_name)
    audit.record(
        audit.Change(
            action=f"{kind}.paused",
            object_type=kind,
            object_id=str(row.pk),
            name=row.name,
            before={"enabled": True},
            after={"enabled": False},
            note=reason,
        )
    )
