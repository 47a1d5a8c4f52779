"""Files that runs made, for people: found by who may see their task, opened through the guard.

A row says what the file was when its run ended. What is given out is exactly that: the path goes
through the guard again, and with another content there the answer is `changed`, not the new bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Literal

from agent.errors import PathRefused
from agent.workspace import Workspace
from tasks import access
from tasks.access import Principal
from tasks.downloads import SMALL_BYTES, Download
from tasks.errors import Conflict, NotFound
from tasks.models import Artifact, Task

WHAT = "artifact"

State = Literal["unchanged", "changed", "gone"]
"""Of a file since its run left it."""


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
    rows = task.artifacts.select_related("task__session__workspace")
    return list(rows.order_by("created_at", "pk"))


def states(rows: Iterable[Artifact]) -> list[State]:
    """Reads files, and asks no database: call it in a thread."""
    return [_state(row) for row in rows]


def _state(artifact: Artifact) -> State:
    """A large file is told by its size alone; its download reads all of it."""
    workspace = Workspace(Path(artifact.task.session.workspace.root))
    try:
        with workspace.open_read(artifact.path) as source:
            if artifact.size <= SMALL_BYTES:
                return "unchanged" if _is(source, artifact) else "changed"
            same = os.fstat(source.fileno()).st_size == artifact.size
            return "unchanged" if same else "changed"
    except (PathRefused, OSError):
        return "gone"


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
