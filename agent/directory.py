"""What is in a directory that is open: the last step of every way through the guard.

Nothing here follows a link or takes a path: a name, and the descriptor of the directory that has it.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import secrets
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice

from agent.beneath import Step
from agent.errors import TargetChanged
from agent.paths import TEMPORARY, refused
from agent.renaming import name_new

ABSENT = "absent"
"""The digest of a file that is not there."""
_MORE_BYTES = 1024 * 1024
MAX_DIGEST_BYTES = 1024 * 1024 * 1024
PERMISSIONS = 0o777

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
OUTSIDE = {
    errno.EXDEV: "the path leads out of the workspace",
    errno.ELOOP: "the path goes through a link that leads nowhere in the workspace or was not there "
    "when the call was judged, or would write through a linked directory",
    errno.ENXIO: "it is not a regular file",
    errno.ENAMETOOLONG: "the path is too long",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Something in the workspace."""

    path: str
    """Relative to the root."""
    kind: str
    """file, directory, link or other"""
    size: int
    """Bytes, of a file."""
    modified: float
    """Seconds since 1970."""


Place = tuple[bool, str]
"""Where an entry stands among the others of its directory: (it is no directory, its name)."""


def regular(fd: int) -> BufferedReader:
    """The descriptor as a file object; closed and refused when it is anything but a file."""
    try:
        _size_of(fd)
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def beginning(fd: int, limit: int) -> bytes:
    """The first `limit` bytes of a file; the descriptor is closed. A file object would look at it
    four times more, and fill a buffer of the limit's size: each is a moment without the
    interpreter's lock."""
    try:
        size = _size_of(fd)
        read = os.read(fd, min(limit, size + 1))
        while len(read) not in (size, limit):  # it has grown, or shrunk
            more = os.read(fd, min(limit - len(read), _MORE_BYTES))
            if not more:
                break
            read += more
        return read
    finally:
        os.close(fd)


def _size_of(fd: int) -> int:
    """Refuses what is anything but a file."""
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise refused(OUTSIDE[errno.ENXIO])
    return found.st_size


def lstat(directory: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def entry_of(path: str, found: os.stat_result) -> Entry:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    size = found.st_size if kind == "file" else 0
    return Entry(path=path, kind=kind, size=size, modified=found.st_mtime)


def entry_in(place: str, found: os.DirEntry[str]) -> Entry | None:
    if _ours(found):
        return None
    path = found.name if place == "." else f"{place}/{found.name}"
    try:
        return entry_of(path, found.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None  # deleted since it was named


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some of the entries of one directory: directories first, then by name."""

    entries: tuple[Entry, ...]
    last: Place | None
    """Where the next page goes on; None: there is none."""
    complete: bool
    """No entry was left unlooked at."""


def page_of(directory: int, path: str, after: Place | None, limit: int, scanned: int) -> Page:
    """The next `limit` entries behind a place. Of a directory with more than `scanned` entries the
    others are not looked at; what is deleted meanwhile is left out."""
    with os.scandir(directory) as entries:
        seen = list(islice(entries, scanned + 1))
        places = [(_place(entry), entry) for entry in seen[:scanned] if not _ours(entry)]
        behind = (each for each in places if after is None or each[0] > after)
        named = heapq.nsmallest(limit + 1, behind, key=lambda each: each[0])
        found = [entry_in(path, entry) for _, entry in named[:limit]]
    return Page(
        entries=tuple(entry for entry in found if entry is not None),
        last=named[limit - 1][0] if len(named) > limit else None,
        complete=len(seen) <= scanned,
    )


def _ours(entry: os.DirEntry[str]) -> bool:
    return TEMPORARY.fullmatch(entry.name) is not None


def _place(entry: os.DirEntry[str]) -> Place:
    return not entry.is_dir(follow_symlinks=False), entry.name


def enterable(entry: Entry, skip: Collection[str]) -> bool:
    return entry.kind == "directory" and entry.path.rpartition("/")[2] not in skip


def left_behind(found: os.stat_result, before: float) -> bool:
    """A second name loses nothing: it may be the one that the file was just given."""
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return ours and found.st_mtime < before


def digest_of(source: BufferedReader) -> str:
    if os.fstat(source.fileno()).st_size > MAX_DIGEST_BYTES:
        raise refused(f"the file is larger than {MAX_DIGEST_BYTES:,} bytes")
    return hashlib.file_digest(source, "sha256").hexdigest()


def digest_at(directory: int, name: str) -> str:
    try:
        fd = os.open(name, READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return ABSENT
    with regular(fd) as source:
        return digest_of(source)


def writable(directory: int, step: Step) -> os.stat_result | None:
    """What would be replaced, None when nothing is there, or a refusal."""
    try:
        found = lstat(directory, step.name)
    except FileNotFoundError:
        if step.linked:
            raise refused(OUTSIDE[errno.ELOOP]) from None
        return None
    if stat.S_ISDIR(found.st_mode):
        raise refused("the path names a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        raise refused(OUTSIDE[errno.ENXIO])
    if found.st_nlink > 1:
        raise refused("the file has a second hard link, perhaps outside, and may only be read")
    return found


def compare(expected: str | None, actual: str) -> None:
    if expected is not None and actual != expected:
        raise changed()


def changed() -> TargetChanged:
    return TargetChanged("The file is not the one that was approved: it changed since then.")


def replace_file(
    directory: int, step: Step, data: bytes, expected: str | None, mode: int | None
) -> None:
    found = writable(directory, step)
    if mode is None and found:
        mode = found.st_mode & PERMISSIONS
    temporary = f".pilothouse-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        writable(directory, step)
        if expected is not None:
            compare(expected, digest_at(directory, step.name))
        _rename(directory, temporary, step.name, new=expected == ABSENT)
    finally:
        with suppress(FileNotFoundError):  # it is gone when it was renamed
            os.unlink(temporary, dir_fd=directory)
    os.fsync(directory)


def _rename(directory: int, temporary: str, name: str, *, new: bool) -> None:
    if not new:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    try:
        name_new(directory, temporary, name)
    except FileExistsError as error:  # somebody made it since the last look
        raise changed() from error
