"""What is in a directory that is open: the last step of every way through the guard.

Nothing here follows a link or takes a path: a name, and the descriptor of the directory that has it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader

from agent.beneath import Step
from agent.errors import TargetChanged
from agent.paths import TEMPORARY, refused

ABSENT = "absent"
"""The digest of a file that is not there."""
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


def regular(fd: int) -> BufferedReader:
    """The descriptor as a file object; closed and refused when it is anything but a file."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        if not stat.S_ISREG(mode):
            raise refused(OUTSIDE[errno.ENXIO])
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def lstat(directory: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def entry_of(path: str, found: os.stat_result) -> Entry:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(path=path, kind=kind, size=found.st_size if kind == "file" else 0)


def entry_in(place: str, found: os.DirEntry[str]) -> Entry | None:
    if TEMPORARY.fullmatch(found.name):
        return None
    path = found.name if place == "." else f"{place}/{found.name}"
    try:
        return entry_of(path, found.stat(follow_symlinks=False))
    except FileNotFoundError:
        return None  # deleted since it was named


def enterable(entry: Entry, skip: Collection[str]) -> bool:
    return entry.kind == "directory" and entry.path.rpartition("/")[2] not in skip


def left_behind(found: os.stat_result, before: float) -> bool:
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1
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
        raise TargetChanged("The file is not the one that was approved: it changed since then.")


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
        os.rename(temporary, step.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        with suppress(FileNotFoundError):  # it is gone when it was renamed
            os.unlink(temporary, dir_fd=directory)
    os.fsync(directory)
