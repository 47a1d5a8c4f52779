"""MCP servers for tests: real programs, good and bad ones, and a run's way to call them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.mcp.backoff import Backoff
from agent.mcp.connections import Connections, Launcher
from agent.mcp.declared import Server, read_servers
from agent.mcp.definitions import Definition, offer
from agent.toolbox import Toolbox, ToolContext, ToolResult
from agent.tools.mcp import mcp_tool
from agent.workspace import Workspace

SERVERS = Path(__file__).parent / "mcp_servers"
PYTHON = getattr(sys, "_base_executable", sys.executable)
OURS = f"tests-of-{os.getpid()}"
"""Stands in the command line of every server that this process starts."""
TOOLS: Mapping[str, Any] = {
    "echo": {"capability": "test:read"},
    "write": {"capability": "test:write", "paths": ["path"]},
    "env": {"capability": "test:list"},
    "many": {"capability": "test:read", "paths": ["paths"]},
}


def entry(mode: str = "ok", *more: str, **fields: Any) -> dict[str, Any]:
    """The settings of one server: `bad_server.py`, in the sandbox."""
    return {
        "command": PYTHON,
        "args": ["-I", "-X", OURS, str(SERVERS / "bad_server.py"), mode, *more],
        "reads": [str(SERVERS), sys.base_prefix],
        "tools": TOOLS,
        "seconds": 60,
        "start_seconds": 60,  # machines are busy
        **fields,
    }


def written_in_sdk(*arguments: str, **fields: Any) -> dict[str, Any]:
    """The settings of `notes_server.py`, which is written with the SDK itself."""
    return {
        "command": sys.executable,
        "args": [str(SERVERS / "notes_server.py"), *arguments],
        "reads": [str(SERVERS), sys.base_prefix, sys.prefix],
        "tools": {
            "search": {"capability": "notes:read", "paths": ["path"]},
            "count": {"capability": "notes:read"},
        },
        "start_seconds": 60,
        **fields,
    }


def declared(variables: Mapping[str, str] | None = None, **entries: Any) -> dict[str, Server]:
    return read_servers(json.dumps(entries), variables or {})


@dataclass
class Desk:
    """A workspace, servers, and the calls of one run."""

    folder: Path
    servers: Mapping[str, Server]
    launcher: Launcher | None = None
    backoff: Backoff | None = None
    noticed: list[tuple[str, Mapping[str, Definition]]] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.workspace = Workspace(self.folder)
        launcher = self.launcher or Launcher(root=self.folder)
        self.connections = Connections(launcher, self._notice, self.backoff)
        self.box = Toolbox([])

    async def accept(self, *names: str) -> None:
        """What the named servers (all) say now is what a person accepted."""
        tools = []
        for server in self.servers.values():
            if names and server.name not in names:
                continue
            found = await self.connections.look(server)
            tools += [
                mcp_tool(offer(server, server.tools[name], definition.text))
                for name, definition in found.items()
                if not definition.problem
            ]
        self.box = self.box.and_more(tools)

    async def call(self, tool: str, *, target: str | None = None, **arguments: Any) -> ToolResult:
        return await self.box.run(f"mcp_{tool}", arguments, self.context(target))

    def context(self, target: str | None = None) -> ToolContext:
        return ToolContext(
            workspace=self.workspace,
            connections=self.connections,
            expected_target=target,
            progress=lambda text, done, total: self.shown.append(text),
        )

    async def _notice(self, server: Server, found: Mapping[str, Definition]) -> None:
        self.noticed.append((server.name, found))


@asynccontextmanager
async def desk(folder: Path, servers: Mapping[str, Server], **more: Any) -> AsyncIterator[Desk]:
    """Closed at the end, as a run closes what it opened."""
    made = Desk(folder, servers, **more)
    try:
        yield made
    finally:
        await made.connections.close()
        made.box.close()
