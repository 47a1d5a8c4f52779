"""Giving a finished file its name where nothing must be yet: of many who try at once, one does.

Looking first and renaming then would lose the file of whoever fits between the two.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Sequence

Way = Callable[[int, str, str], None]
"""(the directory's descriptor, the file's temporary name, its name); raises FileExistsError."""

_RENAME_NOREPLACE = 1
_UNKNOWN = frozenset((errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM))
"""How kernels, file systems and sandboxes say that they do not know or allow a way."""

_libc = ctypes.CDLL(None, use_errno=True)


def by_kernel(directory: int, temporary: str, name: str) -> None:
    """Linux itself, where the file system can (of the usual ones, NFS cannot)."""
    call = getattr(_libc, "renameat2", None)
    if call is None:  # another system, or an old C library
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    names = (os.fsencode(temporary), os.fsencode(name))
    if call(directory, names[0], directory, names[1], ctypes.c_uint(_RENAME_NOREPLACE)):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)


def by_link(directory: int, temporary: str, name: str) -> None:
    """A second name: a link replaces nothing. The caller takes the first one away; until then the
    guard refuses to write the file."""
    os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)


def by_claim(directory: int, temporary: str, name: str) -> None:
    """Where there are no links either: an empty file claims the name and is replaced at once."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, dir_fd=directory))
    os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)


WAYS: Sequence[Way] = (by_kernel, by_link, by_claim)


def name_new(directory: int, temporary: str, name: str, ways: Sequence[Way] = WAYS) -> None:
    """The file under its name, by the first way that works here. Raises FileExistsError."""
    *before, last = ways
    for way in before:
        try:
            return way(directory, temporary, name)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
    return last(directory, temporary, name)
