"""The boot object: what a page's scripts know before they ask for anything. docs/pages.md has it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.templatetags.static import static
from django.urls import reverse

from tasks import access, wiring, words
from tasks.access import Principal
from tasks.conf import Conf, conf
from tasks.events import wire_time
from tasks.models import Member, ModelProfile, Session, Task, Workspace
from tasks.service import MAX_GOAL_CHARS
from tasks.templatetags.pages import THEMES
from tasks.told import server_catalogue

MAX_WORKSPACES = 200
MAX_MODELS = 200


def reader_of(request: HttpRequest) -> Principal:
    """The signed-in reader of a page."""
    assert isinstance(request.user, User)
    return access.principal_of(request.user)


def boot(request: HttpRequest, session: Session | None = None) -> dict[str, Any]:
    principal, configuration = reader_of(request), conf()
    roles = _Roles(principal)
    return {
        "version": settings.VERSION,
        "user": _user(request),
        "csrf": {
            "cookie": settings.CSRF_COOKIE_NAME,
            "header": "X-CSRFToken",
            "token": get_token(request),
        },
        "language": words.language(),
        "theme": _theme(request),
        "strings": words.js_strings(),
        "told": server_catalogue(words.language()),
        "model": _model(session),
        "models": _models(),
        "mode": configuration.mode,
        "limits": _limits(configuration),
        "workspaces": roles.workspaces(),
        "session": None if session is None else _session(session, roles),
        "urls": _urls(principal),
    }


class _Roles:
    """What the reader is in each workspace."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal
        memberships = Member.objects.filter(user_id=principal.user_id)
        self._roles = dict(memberships.values_list("workspace_id", "role"))

    def role(self, workspace: Workspace) -> str | None:
        if workspace.owner_id == self._principal.user_id:
            return "owner"
        return self._roles.get(workspace.pk)

    def rights(self, role: str | None) -> dict[str, bool]:
        decides = role == "owner" or role in access.APPROVERS
        return {
            "can_write": role == "owner" or role in access.WRITERS,
            "can_decide": decides or self._principal.decides_everywhere,
        }

    def groups(self) -> dict[str, bool]:
        """The capabilities of approver groups; true: they are in it."""
        return {key: key in self._principal.decides for key in conf().approver_groups}

    def of_session(self, session: Session) -> str | None:
        owns = session.owner_id == self._principal.user_id
        return "owner" if owns else self.role(session.workspace)

    def workspaces(self) -> list[dict[str, Any]]:
        visible = access.visible_workspaces(self._principal).order_by("created_at", "pk")
        return [
            {**_workspace(row, self.role(row)), **self.rights(self.role(row))}
            for row in visible[:MAX_WORKSPACES]
        ]


def _user(request: HttpRequest) -> dict[str, Any]:
    user = request.user
    assert isinstance(user, User)
    return {
        "id": user.pk,
        "username": user.get_username(),
        "name": user.get_full_name() or user.get_username(),
        "is_staff": user.is_staff,
    }


def _theme(request: HttpRequest) -> str:
    chosen = request.COOKIES.get("theme", "")
    return chosen if chosen in THEMES else "auto"


def _model(session: Session | None) -> dict[str, Any]:
    """Which model a task of now would ask."""
    name, demo = wiring.in_force(None if session is None else session.model_profile)
    default, default_demo = wiring.in_force()
    return {
        "name": name,
        "demo": demo,
        "configured": bool(name),
        "default": default,
        "default_demo": default_demo,
    }


def _models() -> list[dict[str, str]]:
    """What a session may be switched to."""
    rows = ModelProfile.objects.order_by("name").values_list("pk", "name")[:MAX_MODELS]
    return [{"id": str(pk), "name": name} for pk, name in rows]


def _limits(configuration: Conf) -> dict[str, Any]:
    return {
        "steps": configuration.max_agent_steps,
        "seconds": configuration.max_task_seconds,
        "tokens": configuration.max_task_tokens,
        "cost": configuration.max_task_cost,
        "text": MAX_GOAL_CHARS,
        "approval_seconds": configuration.approval_ttl_seconds,
        "heartbeat": configuration.sse_heartbeat_seconds,
    }


def _session(session: Session, roles: _Roles) -> dict[str, Any]:
    forked = None
    if session.forked_from_id:
        forked = {"task_id": str(session.forked_from_id), "sequence": session.forked_at_sequence}
    role = roles.of_session(session)
    return {
        "id": str(session.pk),
        "title": session.title,
        "workspace": _workspace(session.workspace, role),
        "owner": session.owner.get_username(),
        "archived": session.archived,
        "mode": wiring.mode_of(Task.Trigger.CHAT, session.workspace.mode, session.mode),
        "model_profile_id": str(session.model_profile_id) if session.model_profile_id else None,
        **roles.rights(role),
        "decides": roles.groups(),
        "last_position": session.last_position,
        "forked_from": forked,
        "created_at": wire_time(session.created_at),
        "updated_at": wire_time(session.updated_at),
    }


def _workspace(workspace: Workspace, role: str | None) -> dict[str, Any]:
    return {"id": str(workspace.pk), "name": workspace.name, "role": role}


def _urls(principal: Principal) -> dict[str, str | None]:
    return {
        "home": reverse("home"),
        "inbox": reverse("inbox"),
        "settings": reverse("settings"),
        "admin": reverse("admin:index") if principal.is_staff else None,
        "docs": reverse("api:openapi-view"),
        "sign_out": reverse("sign-out"),
        "language": reverse("language"),
        "static": static("app/"),
    }
