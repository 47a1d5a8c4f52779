"""A workspace's files over HTTP, for people and their scripts: listed, downloaded, uploaded, deleted.

The operator's own way, not the agent's: no call waits for a yes here. The guard is the same.
"""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import Query, Router
from ninja.responses import Status

from agent.workspace import MAX_WRITE_BYTES
from tasks import access, files
from tasks.access import EVERY_ROLE, WRITERS, Roles
from tasks.api.edge import Identity, who
from tasks.api.errors import too_large
from tasks.api.paging import DEFAULT_LIMIT, Limit
from tasks.api.schemas import FileItem, FileList, FileOut, answers
from tasks.downloads import Torn, attachment, file_name
from tasks.files import Written
from tasks.models import Workspace

UPLOADS = re.compile(rb"/api/workspaces/[^/]+/files/content")
"""Paths whose PUT brings a file; config.asgi lets these bodies be longer."""

FilePath = Annotated[str, Query(max_length=4096)]
Sha256 = Annotated[str, Query(pattern="^[0-9a-f]{64}$")]
FolderCursor = Annotated[str | None, Query(max_length=1024)]

router = Router(tags=["files"])


@router.get("/{workspace_id}/files", response=answers(200, FileList, 404, 409))
async def list_files(
    request: HttpRequest,
    workspace_id: str,
    path: FilePath = ".",
    cursor: FolderCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> FileList:
    """What is in one folder: folders first, then by name."""
    workspace = await _workspace(request, workspace_id, EVERY_ROLE)
    page, place = await asyncio.to_thread(files.folder, workspace, path, cursor, limit)
    return FileList(
        path=place,
        items=[FileItem.of(entry) for entry in page.entries],
        next=files.cursor_of(page.last),
        complete=page.complete,
    )


@router.get("/{workspace_id}/files/content", response=answers(200, Any, 404, 409, 413))
async def download_file(
    request: HttpRequest, workspace_id: str, path: FilePath
) -> HttpResponseBase:
    """The file, always as an attachment; its `ETag` is its sha256."""
    workspace = await _workspace(request, workspace_id, EVERY_ROLE)
    opened = await asyncio.to_thread(files.open_file, workspace, path)
    try:
        return await attachment(opened, file_name(path), "application/octet-stream")
    except Torn:
        raise files.changing() from None


@router.put(
    "/{workspace_id}/files/content",
    auth=Identity(body=False),
    response=answers(200, FileOut, 404, 409, 413) | {201: FileOut},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"format": "binary"}}},
        }
    },
)
async def upload_file(
    request: HttpRequest, workspace_id: str, path: FilePath, overwrite: Sha256 | None = None
) -> Status[Any]:
    """The body becomes the file, of at most 16 MiB, all of it or nothing. `overwrite` is the sha256
    of the file that it may replace; without it 409 `exists`, with another file there `changed`."""
    workspace = await _workspace(request, workspace_id, WRITERS)
    by = who(request).username
    written = await asyncio.to_thread(_receive, request, workspace, path, overwrite, by)
    return Status(200 if written.replaced else 201, FileOut.of(written))


@router.delete("/{workspace_id}/files/content", response=answers(204, None, 404, 409))
async def delete_file(
    request: HttpRequest, workspace_id: str, path: FilePath, sha256: Sha256
) -> Status[Any]:
    """Delete the file with this sha256; 409 `changed` if it is another one by now."""
    workspace = await _workspace(request, workspace_id, WRITERS)
    await asyncio.to_thread(files.delete, workspace, path, sha256, who(request).username)
    return Status(204, None)


def _receive(
    request: HttpRequest, workspace: Workspace, path: str, overwrite: str | None, by: str
) -> Written:
    """As many bodies are in memory at once as there are threads."""
    data = request.read(MAX_WRITE_BYTES + 1)
    if len(data) > MAX_WRITE_BYTES:
        raise too_large()
    return files.write(workspace, path, data, overwrite, by)


async def _workspace(request: HttpRequest, workspace_id: str, roles: Roles) -> Workspace:
    return await sync_to_async(access.find_workspace)(who(request), workspace_id, roles)
