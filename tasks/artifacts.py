"""Files that runs made, for people: found by who may see their task, opened through the guard.

A row says what the file was when its run ended. What is given out is exactly that: the path goes
through the guard again, and with another content there the answer is `changed`, not the new bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from agent.errors import PathRefused
from agent.workspace import Workspace
from tasks import access
from tasks.access import Principal
from tasks.errors import Conflict, NotFound
from tasks.models import Artifact, Task

BLOCK_BYTES = 256 * 1024
WHAT = "artifact"


class Torn(Exception):
    """The file was changed while it was being sent; what was sent is not what the run made."""


@dataclass(frozen=True)
class Download:
    """An open file whose content was the artifact's a moment ago. Whoever has it closes it."""

    artifact: Artifact
    source: BufferedReader

    def blocks(self) -> Iterator[bytes]:
        """The bytes. The last ones only come if all of them are the artifact's: else `Torn`."""
        digest, held = hashlib.sha256(), b""
        with self.source:
            while block := self.source.read(BLOCK_BYTES):
                digest.update(block)
                if held:
                    yield held
                held = block
            if digest.hexdigest() != self.artifact.sha256:
                raise Torn(f"Artifact {self.artifact.pk} changed while it was being read.")
            yield held

    def read(self) -> bytes:
        """All of it."""
        try:
            return b"".join(self.blocks())
        except Torn:
            raise changed() from None


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
            return Download(artifact, source)
    source.close()
    raise changed()


def _is(source: BufferedReader, artifact: Artifact) -> bool:
    same_size = os.fstat(source.fileno()).st_size == artifact.size
    return same_size and hashlib.file_digest(source, "sha256").hexdigest() == artifact.sha256


def changed() -> Conflict:
    return Conflict("changed", "The file is not there any more as its run left it.")


def file_name(path: str) -> str:
    """The last part of a path, without what has no look of its own: it stands in headers."""
    name = path.replace("\\", "/").rpartition("/")[2]
    return "".join(sign if sign.isprintable() else "_" for sign in name) or "file"
