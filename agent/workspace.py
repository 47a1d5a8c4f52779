"""The path guard: every path that a tool touches is opened through it, or refused.

1. A path is relative and stays inside the root after links are resolved. That is decided while
   opening (see `agent.beneath`), not before, so a race gains nothing.
2. Only regular files and directories. A FIFO, socket or device is refused and never hangs.
3. Names are taken literally; `agent.paths` says which are refused.
4. Writes are whole files: a temporary file in the same directory, renamed. They go through real
   directories only, so that people who approve a path see where it is. A file with a second hard
   link is not written: the other name may lie outside.
5. A refusal is one line: that it is policy, what is allowed, not to try another way. It never
   shows where the workspace lies on the server.

A Workspace holds nothing open, so it costs nothing, leaks nothing and may be shared by threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import BufferedReader
from itertools import islice
from pathlib import Path

from agent.beneath import DIRECTORY, Opener, Step, Walk, best_opener, open_root, open_straight
from agent.directory import (
    ABSENT,
    OUTSIDE,
    PERMISSIONS,
    READ,
    Entry,
    Page,
    Place,
    beginning,
    compare,
    digest_at,
    digest_of,
    enterable,
    entry_in,
    entry_of,
    left_behind,
    lstat,
    page_of,
    regular,
    replace_file,
    writable,
)
from agent.errors import PathRefused
from agent.paths import MAX_DEPTH, TEMPORARY, file_path, forbid, normal, refused, writable_path

__all__ = [
    "ABSENT",
    "MAX_WRITE_BYTES",
    "PERMISSIONS",
    "Entry",
    "Listing",
    "Page",
    "Place",
    "Target",
    "Workspace",
]

MAX_SWEPT = 100_000
"""Entries looked at in one sweep."""
MAX_LISTED = 100_000
"""Entries of one directory that are looked at for a page of it."""
MAX_WRITE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a walk found, nearest to the start first."""

    entries: tuple[Entry, ...]
    complete: bool
    """Nothing was left out."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Where a write would land."""

    path: str
    """Relative to the root, links resolved: the one true spelling."""
    digest: str
    """sha256 of what is there now, or `absent`."""
    size: int
    mode: int = 0
    """Permissions of what is there now."""
    missing: tuple[str, ...] = ()
    """Directories above it that a write would make, the outermost first."""


@dataclass(frozen=True)
class Workspace:
    """The one folder that a session's tools may touch."""

    root: Path
    opener: Opener = field(default_factory=best_opener, repr=False)
    links: bool = True
    """False: no link is followed, because where each path leads was looked at before."""

    def unlinked(self) -> Workspace:
        """The same folder, for paths that were judged: what became a link since is refused."""
        return replace(self, links=False)

    # ── reading ───────────────────────────────────────────────────────────────────────────────

    def open_read(self, path: str) -> BufferedReader:
        """Open a regular file. The caller closes it."""
        return regular(self._file(path))

    def read_bytes(self, path: str, limit: int) -> bytes:
        """The first `limit` bytes of a file."""
        return beginning(self._file(path), limit)

    def digest(self, path: str) -> str:
        """sha256 of a file's content in hex, or `absent`."""
        try:
            with self.open_read(path) as source:
                return digest_of(source)
        except FileNotFoundError:
            return ABSENT

    def has_any(self, *names: str) -> bool:
        """Whether one of these is in the folder itself, whatever it is; False where that is closed
        to us. Two looks at names cost less than two directories that are not there."""
        try:
            with self._root() as root:
                return any(
                    os.access(name, os.F_OK, dir_fd=root, follow_symlinks=False) for name in names
                )
        except PathRefused:
            return False

    def stat(self, path: str) -> Entry:
        """What is there; links are resolved. Opens nothing but directories."""
        with self._walk(normal(path)) as walk:
            name = walk.to_last().name
            way = walk.names if name == "." and walk.names else (*walk.names, name)
            return entry_of("/".join(way), lstat(walk.fd, name))

    def resolve(self, path: str) -> str:
        """Where a path leads, links resolved: its one true spelling, also of what is not there."""
        with self._walk(normal(path)) as walk:
            try:
                last = [walk.to_last().name]
            except FileNotFoundError:
                last = _creatable(walk.left)
            return "/".join(name for name in (*walk.names, *last) if name != ".") or "."

    def walk(
        self, path: str, *, max_depth: int, max_entries: int, skip: Collection[str] = ()
    ) -> Listing:
        """Everything below `path`, level by level. Links are named, not followed; directories
        called as in `skip` are named, not entered."""
        found: list[Entry] = []
        complete = True
        waiting = deque([(normal(path), 1)])
        while waiting:
            place, depth = waiting.popleft()
            try:
                entries = self._scan(place, max_entries - len(found) + 1)
            except (OSError, PathRefused):
                if not found and depth == 1:
                    raise
                complete = False  # gone or closed to us since it was named
                continue
            entries.sort(key=lambda entry: entry.path)
            found += entries
            if len(found) > max_entries:
                return Listing(entries=tuple(found[:max_entries]), complete=False)
            below = [entry.path for entry in entries if enterable(entry, skip)]
            complete = complete and (depth < max_depth or not below)
            waiting.extend((each, depth + 1) for each in below if depth < max_depth)
        return Listing(entries=tuple(found), complete=complete)

    def page(self, path: str, *, after: Place | None = None, limit: int) -> Page:
        """Some of what is in one directory; what the server has half written is not named."""
        with self._directory(normal(path)) as fd:
            return page_of(fd, normal(path), after, limit, MAX_LISTED)

    # ── writing ───────────────────────────────────────────────────────────────────────────────

    def target(self, path: str, *, forbidden: Collection[str] = ()) -> Target:
        """What `write_atomic` would replace; refuses what it would refuse, changes nothing."""
        with self._walk(writable_path(path)) as walk:
            try:
                step = walk.to_last(linked_directories=False, look=forbid(forbidden))
            except FileNotFoundError:
                way = (*walk.names, *_creatable(walk.left))
                above = range(len(walk.names) + 1, len(way))
                missing = tuple("/".join(way[:depth]) for depth in above)
                return Target(path="/".join(way), digest=ABSENT, size=0, missing=missing)
            found = writable(walk.fd, step)
            return Target(
                path="/".join((*walk.names, step.name)),
                digest=digest_at(walk.fd, step.name),
                size=found.st_size if found else 0,
                mode=found.st_mode & PERMISSIONS if found else 0,
            )

    def write_atomic(
        self,
        path: str,
        data: bytes,
        *,
        expected: str | None = None,
        forbidden: Collection[str] = (),
        mode: int | None = None,
    ) -> None:
        """Replace or create a file and the directories above it; None: it keeps its permissions.

        `expected` is the digest that was approved: with another file there, TargetChanged.
        `forbidden` names top directories that are not for this tool. Where nothing is expected, of
        many who write at once one creates the file. Otherwise the last look at the target and the
        rename are two system calls: a writer who fits between them loses his version.
        """
        if len(data) > MAX_WRITE_BYTES:
            raise refused(f"more than {MAX_WRITE_BYTES:,} bytes for one file")
        found = self.target(path, forbidden=forbidden)  # refuse before a directory is made
        compare(expected, found.digest)
        with self._walk(writable_path(path)) as walk:
            step = walk.to_last(create=True, linked_directories=False, look=forbid(forbidden))
            replace_file(walk.fd, step, data, expected, mode)

    def remove(self, path: str, *, expected: str) -> None:
        """Delete a file, if its digest is the expected one: else TargetChanged."""
        with self._walk(writable_path(path)) as walk:
            step = walk.to_last(linked_directories=False)
            writable(walk.fd, step)
            compare(expected, digest_at(walk.fd, step.name))
            os.unlink(step.name, dir_fd=walk.fd)
            os.fsync(walk.fd)

    def remove_directory(self, path: str) -> bool:
        """Delete a directory, if nothing is in it: whether it is gone."""
        try:
            with self._walk(writable_path(path)) as walk:
                os.rmdir(walk.to_last(linked_directories=False).name, dir_fd=walk.fd)
        except (OSError, PathRefused):
            return False
        return True

    def sweep(self, *, before: float) -> int:
        """Remove the temporary files that a crash left; how many. Only files that bear our name
        and are ours, and only those last written before that time: a younger one may be in use."""
        found = self.walk(".", max_depth=MAX_DEPTH, max_entries=MAX_SWEPT)
        below = [entry.path for entry in found.entries if entry.kind == "directory"]
        return sum(self._sweep_one(place, before) for place in (".", *below))

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    def _scan(self, place: str, limit: int) -> list[Entry]:
        with self._directory(place) as fd, os.scandir(fd) as entries:
            found = (entry_in(place, entry) for entry in islice(entries, limit))
            return [entry for entry in found if entry is not None]

    def _sweep_one(self, place: str, before: float) -> int:
        removed = 0
        with suppress(OSError, PathRefused), self._directory(place) as fd:  # gone, or closed to us
            with os.scandir(fd) as entries:
                names = [entry.name for entry in entries if TEMPORARY.fullmatch(entry.name)]
            for name in names:
                if left_behind(lstat(fd, name), before):
                    os.unlink(name, dir_fd=fd)
                    removed += 1
        return removed

    def _file(self, path: str) -> int:
        """Nearly all ways lead through no link and never back, and can be opened in one go. What
        that is not, or why it cannot be, a look from the root on tells."""
        path = file_path(path)
        if ".." not in path:
            try:
                return open_straight(self.root, path, READ, self.opener)
            except OSError:
                pass
        with self._root() as root, _refusing():
            return self._open(root, path, READ)

    @contextmanager
    def _directory(self, path: str) -> Iterator[int]:
        with self._root() as root, _refusing():
            fd = self._open(root, path, DIRECTORY)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _walk(self, path: str) -> Iterator[Walk]:
        with self._root() as root, _refusing(), Walk(root, path, links=self.links) as walk:
            yield walk

    def _open(self, root: int, path: str, flags: int) -> int:
        return self.opener(root, path, flags, links=self.links)

    @contextmanager
    def _root(self) -> Iterator[int]:
        try:
            fd = open_root(self.root, self.opener)
        except OSError as error:
            raise PathRefused(
                "The workspace folder is missing or closed to us: no file can be used until a "
                "person restores it; do not try another way."
            ) from error
        try:
            yield fd
        finally:
            os.close(fd)


@contextmanager
def _refusing() -> Iterator[None]:
    """The errors by which the kernel says that a way leads outside become refusals."""
    try:
        yield
    except OSError as error:
        if error.errno in OUTSIDE:
            raise refused(OUTSIDE[error.errno]) from error
        raise


def _creatable(left: Sequence[Step]) -> list[str]:
    if any(step.name == ".." for step in left):
        raise refused("the path goes back from a directory that does not exist")
    return [step.name for step in left]
