"""What a command may reach: bubblewrap around it, or nothing at all.

Inside there are the system (read-only), the workspace and an empty /tmp. No network, no other
process, no socket to one, no file of the server, no key, no privilege. The kernel holds this,
whatever the command is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.children import Wrapped, environment
from agent.errors import ToolFailed
from agent.syscalls import filter_for

INSIDE = "/workspace"
"""The workspace's name in the sandbox: where it lies on the server is nobody's business."""
READ_ONLY = ("memory", "skills")
"""Top directories of a workspace that no command changes: what the agent is told in later runs."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
CONFIGURATION = (
    "/etc/alternatives", "/etc/group", "/etc/ld.so.cache", "/etc/localtime", "/etc/nsswitch.conf",
    "/etc/passwd",
)  # fmt: skip
FOR_NETWORK = (
    "/etc/ca-certificates", "/etc/gai.conf", "/etc/hosts", "/etc/pki", "/etc/resolv.conf", "/etc/ssl",
)  # fmt: skip
IN_MEMORY = ("/tmp", "/dev/shm")  # noqa: S108  the sandbox's own
TMP_BYTES = 256 * 1024 * 1024
"""Of each of these."""
PROBE_SECONDS = 10
_NO_PRIVILEGE = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session",
    "--die-with-parent", "--clearenv",
)  # fmt: skip
SEALED = ("/proc", "/dev", "/")
"""Read-only once all is mounted. Where the server is root, files of /proc would change the kernel's
settings; and what is written anywhere else fills the memory."""


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """One workspace in its sandbox."""

    program: str
    """bwrap"""
    root: Path
    hidden: Sequence[Path] = ()
    """Directories of the server that are not seen inside, even where they lie in the system or in
    what may be read."""
    reads: Sequence[Path] = ()
    """Directories that are seen inside beside the system, under their own names."""
    writable: bool = True
    """False: the workspace can only be read."""
    network: bool = False
    """All that the server reaches, its own machine too."""
    lasting: bool = False
    """It runs beside others: what protects their folders stays when it ends."""

    @contextmanager
    def command(self, arguments: Sequence[str], env: dict[str, str]) -> Iterator[Wrapped]:
        """How to run `arguments` inside, one at a time for a workspace unless it is `lasting`."""
        made = [name for name in READ_ONLY if self._protect(name)] if self.writable else []
        try:
            with _readable(_filter()) as calls:
                options = [*self._options(), "--seccomp", str(calls), *_set(env), ""]
                with _readable(os.fsencode("\0".join(options))) as fd:
                    yield Wrapped(
                        arguments=(self.program, "--args", str(fd), "--", *arguments),
                        pass_fds=(fd, calls),
                    )
        finally:
            for name in () if self.lasting else made:
                with suppress(OSError):  # a person put something there meanwhile
                    (self.root / name).rmdir()

    def _options(self) -> list[str]:
        options = [*_NO_PRIVILEGE, *(["--share-net"] if self.network else [])]
        options += ["--proc", "/proc", "--dev", "/dev", *self._system()]
        for name in IN_MEMORY:
            options += ["--size", str(TMP_BYTES), "--tmpfs", name]
        for path in self.reads:
            options += ["--ro-bind", str(path), str(path)]
        options += [*self._hidden(), *self._workspace()]
        for name in SEALED:
            options += ["--remount-ro", name]
        return [*options, "--chdir", INSIDE]

    def _system(self) -> Iterator[str]:
        for path in map(Path, SYSTEM):
            if path.is_symlink():
                yield from ("--symlink", str(path.readlink()), str(path))
            elif path.is_dir():
                yield from ("--ro-bind", str(path), str(path))
        for name in (*CONFIGURATION, *(FOR_NETWORK if self.network else ())):
            yield from ("--ro-bind-try", name, name)

    def _hidden(self) -> Iterator[str]:
        seen = [path.resolve() for path in (*map(Path, SYSTEM), *self.reads)]
        for path in self.hidden:
            if path.is_dir() and any(map(path.is_relative_to, seen)):
                yield from ("--tmpfs", str(path), "--remount-ro", str(path))

    def _workspace(self) -> Iterator[str]:
        if not self.writable:
            yield from ("--ro-bind", str(self.root), INSIDE)
            return
        yield from ("--bind", str(self.root), INSIDE)
        for name in READ_ONLY:
            yield from ("--ro-bind", str(self.root / name), f"{INSIDE}/{name}")

    def _protect(self, name: str) -> bool:
        """See to it that there is something to protect: a command could make it otherwise. True
        when it was made here."""
        path = self.root / name
        if path.is_symlink():
            raise ToolFailed(
                f"{name}/ of this workspace is a link, which cannot be protected from commands. "
                "Tell the person."
            )
        try:
            path.mkdir()
        except FileExistsError:
            return False
        return True


@cache
def bubblewrap() -> str | None:
    """The program, where it is there and the system lets it work. The first call runs it."""
    program = shutil.which("bwrap") if sys.platform == "linux" else None
    if program is None or filter_for() is None:
        return None
    with _readable(_filter()) as calls:
        options = [*_NO_PRIVILEGE, "--seccomp", str(calls), "--ro-bind", "/", "/"]
        try:
            done = subprocess.run(  # noqa: S603  a constant command
                [program, *options, "--", "/bin/sh", "-c", ":"],
                env=environment(),
                capture_output=True,
                timeout=PROBE_SECONDS,
                check=False,
                pass_fds=(calls,),
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return program if done.returncode == 0 else None


def _filter() -> bytes:
    found = filter_for()
    if found is None:
        raise ToolFailed("Commands cannot be run: the sandbox does not know this kind of machine.")
    return found


@contextmanager
def _readable(data: bytes) -> Iterator[int]:
    """A descriptor that a program reads it from: an argument could be read in the process list, inside too."""
    fd = os.memfd_create("sandbox")
    try:
        os.write(fd, data)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


def _set(env: dict[str, str]) -> Iterator[str]:
    for name, value in env.items():
        yield from ("--setenv", name, value)
