"""Shell commands in a workspace: how they are run here, and what tells that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.toolbox import Toolbox, ToolContext, ToolResult
from agent.tools.shell import Shell
from agent.workspace import Workspace
from tests.support.needs import needs_sandbox

LINUX = sys.platform == "linux"
SHORT = 20.0
MEMORY = 256 * 1024 * 1024


def without_sandbox(**more: Any) -> Shell:
    return Shell(seconds=SHORT, memory=MEMORY, sandbox=lambda: None, unsandboxed=True, **more)


def with_sandbox(**more: Any) -> Shell:
    return Shell(**{"seconds": SHORT, "memory": MEMORY, **more})


BOTH = [
    pytest.param(with_sandbox, id="sandbox", marks=needs_sandbox),
    pytest.param(without_sandbox, id="none"),
]


class Desk:
    """A workspace and a way to run lines in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: list[str] = []

    async def run(self, shell: Shell, command: str, expected: str | None = None) -> ToolResult:
        box = Toolbox([shell.tool()])
        try:
            return await box.run("run_command", {"command": command}, self._context(expected))
        finally:
            box.close()

    async def evidence(self, shell: Shell, command: str) -> str:
        box = Toolbox([shell.tool()])
        try:
            return (await box.preview("run_command", {"command": command}, self._context())).diff
        finally:
            box.close()

    def _context(self, expected: str | None = None) -> ToolContext:
        return ToolContext(
            workspace=Workspace(self.folder),
            progress=lambda text, done, total: self.shown.append(text),
            expected_target=expected,
        )


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if LINUX else 0


@contextmanager
def lifeline(desk: Desk) -> Iterator[Callable[[], Awaitable[None]]]:
    """A pipe called `life`: it ends when the last process that inherited it has ended."""
    os.mkfifo(desk.folder / "life")
    end = os.open(desk.folder / "life", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)

    async def last_is_gone() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(end, ended.set)
        try:
            async with asyncio.timeout(SHORT):
                await ended.wait()
        finally:
            asyncio.get_running_loop().remove_reader(end)
        assert os.read(end, 1) == b""

    try:
        yield last_is_gone
    finally:
        os.close(end)
