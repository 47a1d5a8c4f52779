"""Rows for tests, as plain functions: each call makes one, with the least that is valid."""

from __future__ import annotations

import itertools
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User

from tasks.models import Session, Task, Workspace

_numbers = itertools.count(1)


def make_user(name: str = "", **fields: Any) -> User:
    user = get_user_model()(username=name or f"user{next(_numbers)}", **fields)
    user.set_unusable_password()
    user.save()
    return user


def make_workspace(owner: User | None = None, **fields: Any) -> Workspace:
    """Its root is a made-up path unless the test gives a real one."""
    number = next(_numbers)
    fields.setdefault("name", f"workspace{number}")
    fields["root"] = str(fields.get("root", f"/nonexistent/workspace{number}"))
    return Workspace.objects.create(owner=owner or make_user(), **fields)


def make_session(workspace: Workspace | None = None, **fields: Any) -> Session:
    """Belongs to the workspace's owner unless the test says otherwise."""
    workspace = workspace or make_workspace()
    fields.setdefault("owner", workspace.owner)
    return Session.objects.create(workspace=workspace, **fields)


def make_task(session: Session | None = None, **fields: Any) -> Task:
    """A queued task without any event."""
    session = session or make_session()
    fields.setdefault("goal", "Compare the quotes")
    fields.setdefault("trigger", Task.Trigger.API)
    fields.setdefault("created_by", session.owner)
    return Task.objects.create(session=session, **fields)
