"""Files that runs made, over HTTP: listed, and downloaded. Nothing is ever shown from here."""

from __future__ import annotations

import asyncio
from typing import Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Router

from tasks import access, artifacts
from tasks.api.edge import who
from tasks.api.schemas import ArtifactList, ArtifactOut, answers
from tasks.downloads import Torn, attachment, file_name

router = Router(tags=["artifacts"])
of_task = Router(tags=["tasks"])


@of_task.get("/{task_id}/artifacts", response=answers(200, ArtifactList, 404))
async def list_artifacts(request: HttpRequest, task_id: str) -> ArtifactList:
    """The files that a task made, in the order of their making."""
    task = await access.visible_task(who(request), task_id)
    rows = await sync_to_async(artifacts.of_task)(task)
    states = await asyncio.to_thread(artifacts.states, rows)
    items = [ArtifactOut.of(row, state) for row, state in zip(rows, states, strict=True)]
    return ArtifactList(items=items, next=None)


@router.get("/{artifact_id}", response=answers(200, Any, 404, 409))
async def download(request: HttpRequest, artifact_id: str) -> HttpResponseBase:
    """The file as its run left it, always as an attachment; 409 `changed` if it is not that now."""
    artifact = await sync_to_async(artifacts.find)(who(request), artifact_id)
    # Not in the request's lane: a large file takes long to be read.
    opened = await asyncio.to_thread(artifacts.open_unchanged, artifact)
    try:
        return await attachment(opened, file_name(artifact.path), artifact.media_type)
    except Torn:
        raise artifacts.changed() from None
