"""Opening beneath a directory: no path, no link and no race leads outside of it.

Two ways with one promise. `by_kernel` asks Linux itself (`openat2` with RESOLVE_BENEATH).
`by_steps`, for macOS and older kernels, opens one component after the other, each through the
descriptor of the directory before it and never through a link; it reads links itself. Swapping a
directory for a link meanwhile gains nothing: what was opened stays what it was.

Both raise OSError: EXDEV when the way leads outside, ELOOP when a link does not resolve.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol


class Opener(Protocol):
    """How a path below a directory is opened: (its descriptor, path, flags of os.open)."""

    def __call__(self, root: int, path: str, flags: int, /, *, links: bool = True) -> int: ...


DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
MAX_LINKS = 40
"""Links followed on one way; Linux has the same limit."""

_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_ATTEMPTS = 64
_TRANSIENT = (errno.EAGAIN, errno.EINTR)


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def by_kernel(root: int, path: str, flags: int, *, links: bool = True) -> int:
    """Open with one system call that cannot leave `root`; without `links` it follows none."""
    resolve = _RESOLVE_BENEATH | (_RESOLVE_NO_MAGICLINKS if links else _RESOLVE_NO_SYMLINKS)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    code = 0
    for _ in range(_ATTEMPTS):
        fd = _libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code not in _TRANSIENT:  # EAGAIN: a rename raced with a `..`; look again
            break
    raise OSError(code, os.strerror(code))


def by_steps(root: int, path: str, flags: int, *, links: bool = True) -> int:
    """Open component by component."""
    with Walk(root, path, links=links) as walk:
        last = walk.to_last()
        return os.open(last.name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=walk.fd)


@cache
def best_opener() -> Opener:
    """The kernel's way where it answers: some kernels and sandboxes do not know or allow it."""
    return by_kernel if sys.platform == "linux" and works(by_kernel) else by_steps


def open_root(root: Path, opener: Opener | None = None) -> int:
    """The folder under its real path, without a link on the way: one that was replaced by a link
    since it was registered, itself or a folder above it, is not ours any more. Raises OSError."""
    return open_straight(root, ".", DIRECTORY, opener)


def open_straight(root: Path, path: str, flags: int, opener: Opener | None = None) -> int:
    """What lies below the folder, without a link on the whole way; the path has no `..`. Raises
    OSError."""
    way = "/".join((*root.parts[1:], path))
    return (opener or best_opener())(_top(root.anchor), way, flags, links=False)


@cache
def _top(anchor: str) -> int:
    """Stays open: it never is another directory."""
    return os.open(anchor, DIRECTORY)


def works(opener: Opener) -> bool:
    """Whether `opener` can open anything at all here."""
    root = os.open("/", DIRECTORY)
    try:
        os.close(opener(root, ".", DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


class Step(NamedTuple):
    """One component of a way."""

    name: str
    linked: bool
    """It comes from the target of a link, not from the path itself."""


class Walk:
    """A way from the root down: the directories entered so far and the steps still to go.

    `..` returns to a descriptor that is already open, so nobody can move it elsewhere first.
    """

    def __init__(self, root: int, path: str, *, links: bool = True) -> None:
        self._fds = [os.dup(root)]
        self._links = 0 if links else MAX_LINKS
        self.names: list[str] = []
        """Where we are, links resolved."""
        self.left = deque(_steps(path, linked=False))
        """What is still to be walked; after an error, from the step that failed."""

    def __enter__(self) -> Walk:
        return self

    def __exit__(self, *exc: object) -> None:
        while self._fds:
            os.close(self._fds.pop())

    @property
    def fd(self) -> int:
        """The directory where we are."""
        return self._fds[-1]

    def to_last(
        self,
        *,
        create: bool = False,
        linked_directories: bool = True,
        look: Callable[[Sequence[str]], None] = lambda way: None,
    ) -> Step:
        """Walk to the directory of the last step and return that step, which is not a link.

        `create` makes missing directories, but never where a link points to. Without
        `linked_directories` only the last step may be a link. `look` sees every place before it
        is entered or made, and may raise.
        """
        while self.left:
            step = self.left[0]
            target = self._link_target(step)
            if target is not None:
                if len(self.left) > 1 and not linked_directories:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                self._follow(target)
            elif step.name == "..":
                self._back()
            else:
                look((*self.names, step.name))
                if len(self.left) == 1:
                    return step
                self._enter(step, create=create)
        return Step(".", linked=False)

    def _link_target(self, step: Step) -> str | None:
        if step.name == "..":
            return None
        try:
            return os.readlink(step.name, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):  # no link, or nothing there
                return None
            raise

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        self.left.popleft()
        self.left.extendleft(reversed(_steps(target, linked=True)))

    def _back(self) -> None:
        if not self.names:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        os.close(self._fds.pop())
        self.names.pop()
        self.left.popleft()

    def _enter(self, step: Step, *, create: bool) -> None:
        try:
            fd = self._open_directory(step.name)
        except FileNotFoundError:
            if step.linked:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
            if not create:
                raise
            fd = self._make_directory(step.name)
        self._fds.append(fd)
        self.names.append(step.name)
        self.left.popleft()

    def _make_directory(self, name: str) -> int:
        try:
            os.mkdir(name, dir_fd=self.fd)
        except FileExistsError:
            pass  # somebody made it first; opening says whether it is a directory
        return self._open_directory(name)

    def _open_directory(self, name: str) -> int:
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)


def _steps(path: str, *, linked: bool) -> list[Step]:
    return [Step(name, linked) for name in path.split("/") if name not in ("", ".")]
