"""The cast: Alice owns, Bob helps, Vera only looks, Dora decides, Charlie must see nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.models import Permission, User
from django.utils import timezone

from agent.toolbox import ToolContext, arguments_digest
from tasks import wiring
from tasks.access import Principal, issue_token, principal_of
from tasks.models import Approval, Member, Session, Task, Workspace
from tests.support.rows import make_session, make_task, make_user, make_workspace


@dataclass(frozen=True, kw_only=True)
class House:
    """Alice's workspace with one session, one task that waits, and its approval."""

    alice: User
    bob: User
    vera: User
    dora: User
    charlie: User
    workspace: Workspace
    session: Session
    task: Task
    approval: Approval


def make_house(folder: Path) -> House:
    alice, bob, vera, dora, charlie = (
        make_user(name) for name in ("alice", "bob", "vera", "dora", "charlie")
    )
    folder.mkdir(parents=True, exist_ok=True)
    workspace = make_workspace(alice, name="desk", root=folder)
    for user, role in ((bob, "member"), (vera, "viewer"), (dora, "approver")):
        Member.objects.create(workspace=workspace, user=user, role=role)
    session = make_session(workspace)
    task = make_task(session, status=Task.Status.WAITING_APPROVAL)
    return House(
        alice=alice,
        bob=bob,
        vera=vera,
        dora=dora,
        charlie=charlie,
        workspace=workspace,
        session=session,
        task=task,
        approval=make_approval(task),
    )


def make_approval(task: Task, **fields: Any) -> Approval:
    values = {
        "kind": "call",
        "step": 1,
        "tool_call_id": "call-1",
        "tool": "write_file",
        "capability": "file:write",
        "risk": "medium",
        "arguments": {"path": "a.txt", "content": "hello"},
        "expires_at": timezone.now() + timedelta(minutes=30),
    } | fields
    return Approval.objects.create(task=task, **values)


def see(approval: Approval) -> None:
    """Give the row the evidence that the server makes when it asks."""
    kit = wiring.kit_for(approval.task)
    context = ToolContext(workspace=kit.workspace)
    preview = async_to_sync(kit.judge.toolbox.preview)(approval.tool, approval.arguments, context)
    approval.arguments_digest = arguments_digest(approval.tool, approval.arguments)
    if preview is not None:
        approval.diff, approval.target_digest = preview.diff, preview.target_digest
    approval.save()


def bearer(user: User, **options: Any) -> dict[str, str]:
    """The header of a fresh token, for Django's test clients."""
    return {"Authorization": f"Bearer {issue_token(user, 'test', **options)}"}


def principal(user: User) -> Principal:
    return principal_of(User.objects.get(pk=user.pk))


def let_decide_everywhere(user: User) -> None:
    user.user_permissions.add(Permission.objects.get(codename="resolve_approval"))
