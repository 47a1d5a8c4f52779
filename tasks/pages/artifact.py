"""A page that shows a file which a run made: Markdown rendered, text as it is, the rest to download."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from tasks import artifacts
from tasks.downloads import Torn, file_name
from tasks.errors import Conflict, NotFound
from tasks.models import Artifact
from tasks.pages.boot import boot, reader_of
from tasks.render import plain, rendered_now

MAX_SHOWN_BYTES = 1024 * 1024
MARKDOWN = (".md", ".markdown")
TEXT_TYPES = ("text/", "application/json", "application/xml", "application/yaml")


@require_safe
@never_cache
@login_required
def view(request: HttpRequest, artifact_id: str) -> HttpResponse:
    try:
        artifact = artifacts.find(reader_of(request), artifact_id)
    except NotFound as error:
        raise Http404(error.message) from error
    context: dict[str, Any] = {
        "boot": boot(request),
        "artifact": artifact,
        "name": file_name(artifact.path),
        "session": artifact.task.session,
    }
    try:
        context["html"] = _shown(artifact)
    except (Conflict, Torn):
        context["changed"] = True
    status = 409 if "changed" in context else 200
    return render(request, "artifact.html", context, status=status)


def _shown(artifact: Artifact) -> str | None:
    """Its content as HTML; None when it is only for downloading."""
    name = artifact.path.lower()
    is_text = name.endswith(MARKDOWN) or artifact.media_type.startswith(TEXT_TYPES)
    opened = artifacts.open_unchanged(artifact)
    if not is_text or artifact.size > MAX_SHOWN_BYTES:
        opened.source.close()
        return None
    try:
        text = opened.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return rendered_now(text) if name.endswith(MARKDOWN) else plain(text)
