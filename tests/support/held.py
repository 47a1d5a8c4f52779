"""The product's application with gates at the moments that a crash test wants to hit.

Loaded by a real server as `tests.support.held:application`, or run as a worker by
`python -m tests.support.held`. With no gate closed it is the product.
A gate is closed by a file: whoever comes to it says so in a second file and waits until the first
is gone. Gates: `begin` before a run begins, which then does not begin together with its task, and
`begun` in the transaction that began it, and for each
file of a tool call `<path>.before` and `<path>.after` the product's own tool function, all within one
workspace. Calls are counted.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from agent.toolbox import RunTool, Tool, ToolContext, ToolResult
from agent.tools import builtin_tools

FOLDER = ".gates"


@dataclass(frozen=True)
class Gate:
    """One gate of one workspace, seen from either side."""

    workspace: Path
    name: str

    @property
    def closed(self) -> Path:
        return self.workspace.parent / FOLDER / f"{self.workspace.name}.{self.name}.closed"

    @property
    def reached(self) -> Path:
        return self.closed.with_suffix(".reached")

    def close(self) -> Gate:
        self.closed.parent.mkdir(exist_ok=True)
        self.closed.touch()
        return self

    def open(self) -> None:
        self.closed.unlink()

    @property
    def passed(self) -> Path:
        """A byte for each call that went through."""
        return self.closed.with_suffix(".passed")

    def count(self) -> None:
        """The server's side."""
        self.passed.parent.mkdir(exist_ok=True)
        with self.passed.open("ab") as file:
            file.write(b".")

    @property
    def calls(self) -> int:
        return self.passed.stat().st_size if self.passed.exists() else 0

    def wait(self) -> None:
        """The server's side: pass at once, or when it is opened."""
        if self.closed.exists():
            self.reached.write_text(str(os.getpid()))
        while self.closed.exists():
            time.sleep(0.01)


def _gated(tool: Tool) -> Tool:
    def run(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = str(arguments.get("path", ".")).replace("/", "_")
        Gate(context.workspace.root, f"{path}.before").wait()
        Gate(context.workspace.root, path).count()
        _dawdle()
        result = cast(ToolResult, tool.run(arguments, context))
        _dawdle()
        Gate(context.workspace.root, f"{path}.after").wait()
        return result

    gated: RunTool = run
    return replace(tool, run=gated)


def _dawdle() -> None:
    """E2E_DAWDLE: up to so many seconds, so that a random kill hits the time around an effect."""
    time.sleep(random.uniform(0, float(os.environ.get("E2E_DAWDLE", "0"))))


def _gated_tools(**given: Any) -> list[Tool]:
    return [_gated(tool) for tool in builtin_tools(**given)]


def _install() -> None:
    from tasks import starting, toolboxes
    from tasks.models import Task

    begin, command, together = starting.begin, starting._begin, starting.Start.__call__

    async def gated_begin(task_id: Any, *rest: Any, **options: Any) -> Any:
        task = await Task.objects.select_related("session__workspace").aget(pk=task_id)
        gate = Gate(Path(task.session.workspace.root), "begin")
        await asyncio.to_thread(gate.wait)
        return await begin(task_id, *rest, **options)

    def gated_command(task_id: Any, *rest: Any, **options: Any) -> Any:
        begun = command(task_id, *rest, **options)
        if begun is not None:
            Gate(Path(begun.task.session.workspace.root), "begun").wait()
        return begun

    def gated_start(start: starting.Start, task: Task, born: Any) -> Any:
        root = Path(task.session.workspace.root)
        if Gate(root, "begin").closed.exists():
            return None  # it waits for its turn, and comes to that gate
        beginning = together(start, task, born)
        Gate(root, "begun").wait()
        return beginning

    starting.begin, starting._begin = gated_begin, gated_command
    starting.Start.__call__ = gated_start  # type: ignore[assignment, method-assign]
    toolboxes.builtin_tools = _gated_tools  # type: ignore[attr-defined] # its own name for it


if "E2E_HOSTNAME" in os.environ:
    socket.gethostname = lambda: os.environ["E2E_HOSTNAME"]
if __name__ == "__main__":
    import django
    from django.core.management import execute_from_command_line

    django.setup(set_prefix=False)
    _install()
    execute_from_command_line(["manage.py", "worker"])
elif os.environ.get("E2E_GATES"):
    from config.asgi import application as application

    _install()
