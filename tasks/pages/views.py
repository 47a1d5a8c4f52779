"""The pages themselves. A foreign session is 404, like one that does not exist."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from tasks import access
from tasks.errors import NotFound
from tasks.models import Session, Workspace
from tasks.pages.boot import boot, reader_of
from tasks.policy_in_force import policy_in_force

YEAR_SECONDS = 365 * 24 * 3600


@require_safe
@never_cache
@login_required
def home(request: HttpRequest) -> HttpResponse:
    """A new task."""
    return render(request, "app/chat.html", {"boot": boot(request), "session": None})


@require_safe
@never_cache
@login_required
def conversation(request: HttpRequest, session_id: str) -> HttpResponse:
    session = session_of(request, session_id)
    return render(request, "app/chat.html", {"boot": boot(request, session), "session": session})


@require_safe
@never_cache
@login_required
def inbox(request: HttpRequest) -> HttpResponse:
    """What waits for a decision; the page asks the API for it."""
    return render(request, "app/inbox.html", {"boot": boot(request)})


@require_safe
@never_cache
@login_required
def people(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """Who is in a workspace, and whose its sessions are; the page asks the API for both."""
    workspace = _workspace(request, workspace_id)
    owns = workspace.owner_id == reader_of(request).user_id
    context = {"boot": boot(request), "workspace": workspace, "owns": owns}
    return render(request, "app/people.html", context)


@require_safe
@never_cache
@login_required
def files(request: HttpRequest, workspace_id: str) -> HttpResponse:
    """What is in a workspace's folder; the page asks the API for it."""
    workspace = _workspace(request, workspace_id)
    writers = access.visible_workspaces(reader_of(request), access.WRITERS)
    writes = writers.filter(pk=workspace.pk).exists()
    context = {"boot": boot(request), "workspace": workspace, "writes": writes}
    return render(request, "app/files.html", context)


@require_safe
@never_cache
@login_required
def preferences(request: HttpRequest) -> HttpResponse:
    """Display, language, workspaces, tokens, and the policy in force."""
    context: dict[str, Any] = {"boot": boot(request), "policy": policy_in_force()}
    return render(request, "app/settings.html", context)


@require_POST
def choose_language(request: HttpRequest) -> HttpResponse:
    """Keep the reader's choice in a cookie; empty means: what the browser says."""
    response = HttpResponseRedirect(_own_path(request.POST.get("next", "")))
    chosen = request.POST.get("language", "")
    if chosen in dict(settings.LANGUAGES):
        response.set_cookie(
            settings.LANGUAGE_COOKIE_NAME,
            chosen,
            max_age=YEAR_SECONDS,
            secure=settings.SESSION_COOKIE_SECURE,
            samesite="Lax",
        )
    elif not chosen:
        response.delete_cookie(settings.LANGUAGE_COOKIE_NAME, samesite="Lax")
    return response


def _own_path(target: str) -> str:
    """Never to another site."""
    parts = urlsplit(target)
    safe = url_has_allowed_host_and_scheme(target, allowed_hosts=None)
    return target if safe and parts.path.startswith("/") else "/"


def _workspace(request: HttpRequest, workspace_id: str) -> Workspace:
    try:
        return access.find_workspace(reader_of(request), workspace_id)
    except NotFound as error:
        raise Http404(error.message) from error


def session_of(request: HttpRequest, session_id: str) -> Session:
    try:
        return access.find_session(reader_of(request), session_id)
    except NotFound as error:
        raise Http404(error.message) from error
