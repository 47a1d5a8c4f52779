"""Files that runs made, for people: found by who may see their task, opened through the guard.

A row says what the file was when its run ended. What is given out is exactly that: the path goes
through the guard again, and with another content there the answer is `changed`, not the new bytes.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from io import BufferedReader
from pathlib import Path

from agent.errors import PathRefused
from agent.workspace import Workspace
from tasks import access
from tasks.access import Principal
from tasks.downloads import Download
from tasks.errors import Conflict, NotFound
from tasks.models import Artifact, Task

WHAT = "artifact"


def find(principal: Principal, artifact_id: object) -> Artifact:
    """One of a task that they may see, or NotFound."""
    found = Artifact.objects.select_related("task__session__workspace")
    artifact = found.filter(pk=access.parse_id(artifact_id, WHAT)).first()
    if artifact is None:
        raise NotFound(WHAT)
    try:
        access.find_task(principal, artifact.task_id)
    except NotFound:
        raise NotFound(WHAT) from None
    return artifact


def of_task(task: Task) -> list[Artifact]:
    return list(task.artifacts.order_by("created_at", "pk"))


def open_unchanged(artifact: Artifact) -> Download:
    """Reads all of it once: call it off the event loop. Raises Conflict (`changed`)."""
    workspace = Workspace(Path(artifact.task.session.workspace.root))
    try:
        source = workspace.open_read(artifact.path)
    except (PathRefused, OSError):
        raise changed() from None
    with suppress(OSError):
        if _is(source, artifact):
            source.seek(0)
            return Download(source, artifact.size, artifact.sha256)
    source.close()
    raise changed()


def _is(source: BufferedReader, artifact: Artifact) -> bool:
    same_size = os.fstat(source.fileno()).st_size == artifact.size
    return same_size and hashlib.file_digest(source, "sha256").hexdigest() == artifact.sha256


def changed() -> Conflict:
    return Conflict("changed", "The file is not there any more as its run left it.")
