"""Signed exports over HTTP, for whoever may read what is exported. Every one is in the audit."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from ninja import Router

from tasks import access, exports
from tasks.api.edge import who
from tasks.api.schemas import answers
from tasks.downloads import Blocks
from tasks.exports import Export

SMALL_BYTES = 1024 * 1024
"""So much is sent in one piece."""

of_task = Router(tags=["tasks"])
of_session = Router(tags=["sessions"])


@of_task.get("/{task_id}/export", response=answers(200, Any, 404))
async def export_task(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """Its log as a signed zip file that `verify_export.py` checks anywhere."""
    task = await access.visible_task(who(request), task_id)
    return attachment(await sync_to_async(exports.of_task)(task, who(request).username))


@of_session.get("/{session_id}/export", response=answers(200, Any, 404))
async def export_session(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """The logs of all its tasks as one signed zip file."""
    session = await access.visible_session(who(request), session_id)
    return attachment(await sync_to_async(exports.of_session)(session, who(request).username))


def attachment(export: Export) -> HttpResponseBase:
    """Its download; of a large one, closing the response closes the file."""
    headers = {
        "Content-Type": "application/zip",
        "Content-Length": str(export.size),
        "Content-Disposition": f'attachment; filename="{export.name}"',
        "Cache-Control": "private, no-store",
        "X-Content-Type-Options": "nosniff",
    }
    if export.size <= SMALL_BYTES:
        with export.file:
            return HttpResponse(export.file.read(), headers=headers)
    return StreamingHttpResponse(Blocks.of(export.file), headers=headers)
