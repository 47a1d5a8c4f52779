"""What runs may use, by the settings and by the MCP servers that a workspace names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.mcp.backoff import Backoff
from agent.mcp.connections import Connections, Launcher
from agent.mcp.declared import Server
from agent.mcp.definitions import Definition, Offer
from agent.skills import Library
from agent.toolbox import Toolbox
from agent.tools import builtin_tools
from agent.tools.mcp import mcp_tool
from agent.tools.shell import Shell
from agent.tools.skills import Skills
from agent.tools.web import Web
from tasks import servers
from tasks.conf import Conf, conf
from tasks.models import Workspace

PROJECT = Path(__file__).resolve().parents[1]
"""Where the program lies, and perhaps its `.env`."""
TOOL_THREADS = 16
"""Plain tools that run at once, over all runs of this process."""


def toolbox(workspace: Workspace | None = None) -> Toolbox:
    """What the settings let a run use, in a workspace with the MCP servers that it names; without
    one, all that any run could use. Asks the database where there are MCP servers."""
    box = own_tools()
    offers = servers.offers(workspace)
    return _with(box, offers) if offers else box


def own_tools() -> Toolbox:
    """The same without MCP servers: what a run may use in every workspace."""
    return _toolbox(library(), _shell(conf()), Web() if conf().enable_web else None)


def library() -> Library:
    """Where skills come from."""
    return Library(conf().skills_dir)


def _shell(settings: Conf) -> Shell | None:
    if not settings.enable_shell:
        return None
    return Shell(
        seconds=settings.shell_seconds,
        memory=settings.shell_memory_mb * 1024**2,
        unsandboxed=settings.shell_unsandboxed,
        hidden=_ours(settings),
    )


def _ours(settings: Conf) -> tuple[Path, ...]:
    """Directories that no program sees that is run for a task."""
    return (PROJECT, settings.var_dir, settings.workspaces_dir)


def connections(root: Path) -> Connections | None:
    """To the MCP servers of a run in this folder, where any are declared."""
    return _connections(root, _backoff()) if conf().mcp_servers else None


def _connections(root: Path, backoff: Backoff | None = None) -> Connections:
    return Connections(Launcher(root=root, hidden=_ours(conf())), servers.noticed, backoff)


@cache
def _backoff() -> Backoff:
    """One for the process: a server that fails is left alone by all runs of a workspace."""
    return Backoff()


async def look(server: Server) -> Mapping[str, Definition]:
    """Start an MCP server in an empty folder, and keep what it says of its declared tools. Raises
    ToolFailed."""
    with TemporaryDirectory(prefix="pilothouse-look-") as folder:
        alone = _connections(Path(folder))
        try:
            return await alone.look(server)
        finally:
            await alone.close()


@cache
def _toolbox(library: Library, shell: Shell | None, web: Web | None) -> Toolbox:
    """One for the process: the tools hold no state, and its threads are worth keeping."""
    tools = builtin_tools(skills=Skills(library), shell=shell, web=web)
    return Toolbox(tools, threads=TOOL_THREADS)


@lru_cache(maxsize=256)
def _with(box: Toolbox, offers: tuple[Offer, ...]) -> Toolbox:
    """Checking schemas takes its time: one for all runs with the same tools."""
    return box.and_more([mcp_tool(offer) for offer in offers])
