"""Who may work in a workspace beside its owner, and whose a session is.

Every change and its audit entry are one transaction. A session never stays with somebody who may
no longer work in its workspace: it passes to the workspace's owner.
"""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from tasks import audit
from tasks.access import WRITERS
from tasks.errors import Invalid, NotFound
from tasks.models import Approval, Member, Session, Task, Workspace


def members_of(workspace: Workspace) -> QuerySet[Member]:
    return Member.objects.filter(workspace=workspace).select_related("user").order_by("pk")


def set_role(workspace: Workspace, username: str, role: str, by: str) -> Member:
    """Let somebody in, or change what they may do."""
    user = _person(username)
    if user.pk == workspace.owner_id:
        raise Invalid("is_owner", "The owner of a workspace has every right in it already.")
    with transaction.atomic():
        _lock(workspace.pk)
        before = Member.objects.filter(workspace=workspace, user=user).first()
        if before is not None and before.role == role:
            return before
        member, _ = Member.objects.update_or_create(
            workspace=workspace, user=user, defaults={"role": role}
        )
        change = audit.of_workspace(
            workspace,
            f"workspace.member_{'changed' if before else 'added'}",
            by,
            before={"user": user.pk, "role": before.role} if before else {},
            after={"user": user.pk, "role": role},
            note=username,
        )
        audit.record(change)
        reclaim(workspace, by)
    return member


def remove(workspace: Workspace, username: str, by: str) -> None:
    with transaction.atomic():
        _lock(workspace.pk)
        member = members_of(workspace).filter(user__username=username).first()
        if member is None:
            raise NotFound("member")
        member.delete()
        before = {"user": member.user_id, "role": member.role}
        change = audit.of_workspace(
            workspace, "workspace.member_removed", by, before=before, note=username
        )
        audit.record(change)
        reclaim(workspace, by)


def reclaim(workspace: Workspace, by: str) -> None:
    """Inside a transaction: sessions of people who may no longer work here pass to the owner."""
    owner = workspace.owner
    for session in Session.objects.filter(workspace=workspace).exclude(owner=owner):
        if not _may_work(workspace, session.owner_id):
            _give(session, owner, by, "Its owner may no longer work in the workspace.")


def hand_over(session_id: UUID, username: str, by: str) -> None:
    """A session, with its history and its work, becomes a colleague's."""
    user = _person(username)
    with transaction.atomic():
        session = Session.objects.get(pk=session_id)
        _lock(session.workspace_id)
        if not _may_work(session.workspace, user.pk):
            message = f"{username} may not work in the workspace {session.workspace.name}."
            raise Invalid("not_a_member", message, {"username": message})
        if session.owner_id != user.pk:
            _give(session, user, by, "")


def _lock(workspace_id: UUID) -> None:
    """Nobody leaves between the look at who may work here and what follows from it."""
    Workspace.objects.select_for_update().get(pk=workspace_id)


def _may_work(workspace: Workspace, user_id: int) -> bool:
    if user_id == workspace.owner_id:
        return True
    rows = Member.objects.filter(workspace=workspace, user_id=user_id, role__in=WRITERS)
    return rows.exists()


def _give(session: Session, user: User, by: str, why: str) -> None:
    before = session.owner
    _own(session, user)
    change = audit.Change(
        action="session.handed_over",
        by=by,
        object_type="session",
        object_id=str(session.pk),
        name=session.title,
        before={"owner": before.pk, "name": before.get_username()},
        after={"owner": user.pk, "name": user.get_username()},
        note=why,
    )
    audit.record(change)


def _own(session: Session, user: User) -> None:
    """The session and the copies of its owner, by which lists are read. Rows of tasks come before
    the session's, as in every append; then those that were made until it was ours."""
    tasks = Task.objects.filter(session=session).exclude(owner=user)
    tasks.update(owner=user)
    Session.objects.filter(pk=session.pk).update(owner=user)
    tasks.update(owner=user)
    Approval.objects.filter(task__session=session).update(owner=user)


def _person(username: str) -> User:
    user = User.objects.filter(username=username, is_active=True).first()
    if user is None:
        raise NotFound("user")
    return user
