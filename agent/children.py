"""Child processes: an environment without secrets, a session of their own, an end for all of them.

Whatever we start (commands, servers of tools, converters) gets the environment from here. Every key
that the server knows stays with the server.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

INHERITED = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")
"""What a child may know of our environment; none of it is a secret or names one."""
BLOCK_BYTES = 256 * 1024
_TIED = """
{{ read -r -u {fd}; kill -KILL -- "-$$"; }} </dev/null >/dev/null 2>&1 &
exec {fd}<&-
"""
"""Ends the group when the other end of the pipe closes, because the server died."""


def environment(source: Mapping[str, str] | None = None, **more: str) -> dict[str, str]:
    """The environment of a child: what is inherited, a plain locale and path, and `more`."""
    source = os.environ if source is None else source
    kept = {name: source[name] for name in INHERITED if source.get(name)}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **kept, **more}


@dataclass(frozen=True, kw_only=True)
class Wrapped:
    """A command line and the descriptors that it needs."""

    arguments: tuple[str, ...]
    pass_fds: tuple[int, ...] = ()


@contextmanager
def tied(bash: Sequence[str], script: str, *arguments: str) -> Iterator[Wrapped]:
    """A bash script (`$1` … are the arguments) that lives no longer than this process, as long as
    it leads a session of its own. Stay in the block while it runs."""
    reading, writing = os.pipe()
    try:
        text = _TIED.format(fd=reading) + script
        yield Wrapped(arguments=(*bash, text, "bash", *arguments), pass_fds=(reading,))
    finally:
        os.close(reading)
        os.close(writing)


def kill_group(pid: int) -> None:
    """A leader and everybody in its group. It keeps its number as long as anybody is in it."""
    with suppress(ProcessLookupError, PermissionError):  # nobody left; macOS: only zombies
        os.killpg(pid, signal.SIGKILL)


class Child:
    """A running process and everything that it started in its session."""

    def __init__(self, process: asyncio.subprocess.Process, ended: asyncio.Future[None]) -> None:
        self._process = process
        self._ended = ended

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Until it has ended by itself and its output is read: the exit status, negative for a
        signal. What it left behind is killed."""
        status = await self._process.wait()
        self.kill()
        await self._ended
        return status

    def kill(self) -> None:
        """All of it, at once."""
        kill_group(self._process.pid)


@asynccontextmanager
async def running(
    arguments: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    output: Callable[[bytes], None],
    pass_fds: Sequence[int] = (),
) -> AsyncIterator[Child]:
    """Run a program without input; `output` gets what it writes, stdout and stderr in their order.

    However the block is left, the process and its group are dead then, and waited for.
    """
    reading, writing = os.pipe()
    try:
        read = _Output(reading, output)
        try:
            process = await asyncio.create_subprocess_exec(
                *arguments,
                cwd=cwd,
                env=dict(env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=writing,
                stderr=writing,
                pass_fds=pass_fds,
                start_new_session=True,
            )
        except BaseException:
            read.close()
            raise
    finally:
        os.close(writing)
    child = Child(process, read.ended)
    try:
        yield child
    finally:
        child.kill()
        await process.wait()
        read.close()


class _Output:
    """Reads a pipe, of whose descriptor it is the owner. No transport does: uvloop's closes that of a
    file twice, and the second time it may be what another thread has just opened: a database."""

    def __init__(self, fd: int, output: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._output = output
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Nothing more is read."""
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def close(self) -> None:
        if not self.ended.done():
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, BLOCK_BYTES)
        except BlockingIOError:  # the loop was mistaken
            return
        if data:
            self._output(data)
        else:
            self.close()
