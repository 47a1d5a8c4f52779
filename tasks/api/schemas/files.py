"""Files of a workspace, and what runs are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import BaseModel

from agent.skills import Skill
from agent.text import clean
from agent.workspace import Entry
from tasks.api.schemas.common import stamp
from tasks.files import Written, openable


class FileItem(BaseModel):
    name: str
    path: str | None
    """From the workspace's top; null: its name is one that cannot be asked for."""
    kind: str
    """directory, file, link or other"""
    size: int
    """Bytes, of a file."""
    modified_at: str | None

    @classmethod
    def of(cls, entry: Entry) -> FileItem:
        return cls(
            name=clean(entry.path.rpartition("/")[2]),
            path=entry.path if openable(entry.path) else None,
            kind=entry.kind,
            size=entry.size,
            modified_at=_modified(entry.modified),
        )


def _modified(seconds: float) -> str | None:
    """None: a file system can say times that no calendar has."""
    try:
        return stamp(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return None


class FileList(BaseModel):
    path: str
    """The folder; `.` is the workspace's top."""
    items: Sequence[FileItem]
    next: str | None
    complete: bool
    """False: the folder holds so much that some of it is never listed."""


class FileOut(BaseModel):
    path: str
    """Links resolved."""
    size: int
    sha256: str

    @classmethod
    def of(cls, written: Written) -> FileOut:
        return cls(path=written.path, size=written.size, sha256=written.sha256)


class MemoryOut(BaseModel):
    text: str
    """As the prompt shows it; empty: there is none."""
    limit: int
    """Bytes that the prompt shows at most."""


class SkillOut(BaseModel):
    name: str
    source: str
    """built-in, server or workspace"""
    description: str
    problem: str
    """Why it cannot be used; empty: it can."""

    @classmethod
    def of(cls, skill: Skill) -> SkillOut:
        return cls(
            name=skill.name,
            source=skill.source,
            description=skill.description,
            problem=skill.problem,
        )


class SkillList(BaseModel):
    items: Sequence[SkillOut]
    next: None
