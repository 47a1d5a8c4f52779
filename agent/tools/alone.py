"""One at a time in a workspace, whatever process it is in: commands, and taking back what calls did."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from agent.beneath import open_root
from agent.errors import ToolFailed

LOOK_SECONDS = 0.05


@asynccontextmanager
async def alone(root: Path, seconds: float) -> AsyncIterator[None]:
    """Waits so long for who is there already. Raises ToolFailed."""
    with _folder(root) as fd:
        waited = 0.0
        while not _locked(fd):
            if waited > seconds:
                raise _occupied()
            await asyncio.sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
        yield


@contextmanager
def alone_now(root: Path) -> Iterator[None]:
    """The same for a thread, without waiting."""
    with _folder(root) as fd:
        if not _locked(fd):
            raise _occupied()
        yield


@contextmanager
def _folder(root: Path) -> Iterator[int]:
    try:
        fd = open_root(root)
    except OSError as error:
        raise ToolFailed("The workspace folder is missing: nothing can be done in it.") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _occupied() -> ToolFailed:
    return ToolFailed("Another command is still running in this workspace. Try later.")
