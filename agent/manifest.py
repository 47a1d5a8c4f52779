"""What a workspace holds, before and after: which files an effect changed, and how.

Bounded: so many entries, so many bytes read, so much text kept for diffs, smaller files first. What
was not looked at is said. A change is seen by the file system's own stamps, which a command cannot set back (ctime).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BufferedReader
from operator import attrgetter
from typing import Any, NamedTuple

from agent.errors import AgentError
from agent.shelf import MAX_FILE_BYTES
from agent.spool import Spool
from agent.workspace import PERMISSIONS, Entry, Workspace

MAX_FILES = 5_000
MAX_LEVELS = 12
MAX_READ_BYTES = 64 * 1024 * 1024
"""Of all files together, for digests."""
MAX_SHOWN_TOGETHER = 8 * 1024 * 1024
"""Of all files together, for diffs."""
MAX_SHOWN_BYTES = 256 * 1024
"""Larger files have a digest and no diff."""
CLOCK_STEP = 20_000_000
"""Nanoseconds."""


class Stamp(NamedTuple):
    """Changes whenever the file does."""

    inode: int
    size: int
    modified: int
    changed: int


@dataclass(frozen=True, kw_only=True)
class File:
    """One file, or a link or something stranger, which is not opened."""

    stamp: Stamp
    sha256: str = ""
    """Empty: it was not read."""
    data: bytes | None = None
    """The content of a small file, as long as there is room."""
    mode: int = 0
    """Permissions."""
    opened: bool = True
    """False: a link or something stranger, or a name that the guard refuses."""

    def told(self) -> dict[str, Any]:
        return {"size": self.stamp.size, "sha256": self.sha256, "mode": f"{self.mode:03o}"}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The files of a workspace at one moment."""

    files: Mapping[str, File]
    directories: frozenset[str]
    complete: bool
    """All files are in it."""
    taken: int
    """When, in nanoseconds; a little earlier, because file systems count in steps."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A file that is not what it was."""

    path: str
    before: File | None
    after: File | None

    @property
    def kind(self) -> str:
        """created, changed or deleted"""
        if self.before is None:
            return "created"
        return "deleted" if self.after is None else "changed"

    def told(self) -> dict[str, Any]:
        """As JSON."""
        said: dict[str, Any] = {"path": self.path, "change": self.kind}
        for name, file in (("before", self.before), ("after", self.after)):
            if file is not None:
                said[name] = file.told()
        return said


def take(
    workspace: Workspace,
    skip: Collection[str] = (),
    known: Manifest | None = None,
    max_files: int = MAX_FILES,
    spool: Spool | None = None,
) -> Manifest:
    """Look at everything below the root. Of a `known` manifest, unchanged files are not read again.
    A spool gets what is read, as much as fits."""
    taken = time.time_ns() - CLOCK_STEP
    listing = workspace.walk(".", max_depth=MAX_LEVELS, max_entries=max_files, skip=skip)
    reader = _Reader(workspace, spool)
    before = {} if known is None else known.files
    files = {
        entry.path: file
        for entry in sorted(listing.entries, key=attrgetter("size"))
        if entry.kind != "directory"
        and (file := reader.read(entry, before.get(entry.path))) is not None
    }
    return Manifest(
        files=files,
        directories=frozenset(e.path for e in listing.entries if e.kind == "directory"),
        complete=listing.complete,
        taken=taken,
    )


def changes(before: Manifest, after: Manifest) -> list[Change]:
    """By path. A file that was rewritten with the same content did not change."""
    paths = sorted(before.files.keys() | after.files.keys())
    found = [
        Change(path=path, before=before.files.get(path), after=after.files.get(path))
        for path in paths
    ]
    return [change for change in found if _happened(change, before, after)]


def _happened(change: Change, before: Manifest, after: Manifest) -> bool:
    """Not merely that one of two incomplete looks did not get to the file."""
    old, new = change.before, change.after
    if old is None:
        return before.complete or (new is not None and new.stamp.changed >= before.taken)
    if new is None:
        return after.complete
    same = bool(old.sha256) and (old.sha256, old.mode) == (new.sha256, new.mode)
    return old.stamp != new.stamp and not same


class _Reader:
    def __init__(self, workspace: Workspace, spool: Spool | None) -> None:
        self._workspace = workspace
        self._spool = spool
        self._unread = MAX_READ_BYTES
        self._unshown = MAX_SHOWN_TOGETHER

    def read(self, entry: Entry, known: File | None) -> File | None:
        if entry.kind != "file":
            return _unopened(entry)
        try:
            with self._workspace.open_read(entry.path) as source:
                return self._opened(source, known)
        except FileNotFoundError:
            return None  # gone since it was named
        except (AgentError, OSError):
            return _unopened(entry)

    def _opened(self, source: BufferedReader, known: File | None) -> File:
        found = os.fstat(source.fileno())
        stamp = Stamp(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if known is not None and known.stamp == stamp:
            return known
        mode = found.st_mode & PERMISSIONS
        if stamp.size > self._unread:
            return File(stamp=stamp, mode=mode)
        self._unread -= stamp.size
        if stamp.size > MAX_FILE_BYTES:
            digest = hashlib.file_digest(source, "sha256").hexdigest()
            return File(stamp=stamp, mode=mode, sha256=digest)
        data = source.read(MAX_FILE_BYTES)
        digest = hashlib.sha256(data).hexdigest()
        if self._spool is not None:
            self._spool.keep(digest, data)
        return File(
            stamp=stamp,
            mode=mode,
            sha256=digest,
            data=data if self._shows(data) else None,
        )

    def _shows(self, data: bytes) -> bool:
        shown = len(data) <= min(MAX_SHOWN_BYTES, self._unshown)
        if shown:
            self._unshown -= len(data)
        return shown


def _unopened(entry: Entry) -> File:
    """A link, or a name that the guard refuses: all that is known is that it is there."""
    return File(stamp=Stamp(0, entry.size, 0, 0), opened=False)
