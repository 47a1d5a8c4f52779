"""The connections of one run to MCP servers: opened at the first call, closed at the end of the run.

1. A server's tools are listed when it is connected, and again when it says that they changed. A
   tool that is not what a person accepted is refused, and whoever wants to know is told.
2. A server that crashes, hangs or babbles costs its call and nothing else: its connection is
   closed, and the next call begins a new one: at first at once, then after longer and longer
   pauses. What does not even begin three times is left alone for the rest of the run.
3. A call that is cut off takes its server with it: what it was doing has an end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any

from agent.children import Wrapped, environment, tied
from agent.errors import ToolFailed
from agent.mcp.backoff import Backoff
from agent.mcp.declared import Server
from agent.mcp.definitions import Definition, Offer, definitions
from agent.mcp.results import Answer, Broken, SessionEnded, answer_of
from agent.sandbox import Sandbox, bubblewrap

if TYPE_CHECKING:
    from agent.mcp.link import Link, Progress

logger = logging.getLogger(__name__)

MAX_FAILURES = 3
"""Times that a server does not begin, in one run."""
ON_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

Noticed = Callable[[Server, Mapping[str, Definition]], Awaitable[None]]
"""Told what a server says of its declared tools, each time it is asked."""


async def _nobody(server: Server, found: Mapping[str, Definition]) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """How servers that are programs are run."""

    root: Path
    """The workspace: their current directory."""
    hidden: Sequence[Path] = ()
    """Directories of Pilothouse."""
    sandbox: Callable[[], str | None] = field(default=bubblewrap, repr=False)
    """The program that makes the sandbox, None without one."""

    def boxed(self, server: Server) -> bool:
        """Whether it runs in a sandbox. Raises ToolFailed where it has to and there is none."""
        if not server.sandbox:
            return False
        if self.sandbox() is None:
            raise ToolFailed(
                f"The MCP server {server.name} cannot be run: there is no working sandbox "
                "(bubblewrap) on this server, and its settings do not say that it needs none. Tell "
                "the person."
            )
        return True

    def program(self, server: Server) -> AbstractContextManager[Wrapped]:
        """Its command line; stay in the block while it runs. Raises ToolFailed."""
        boxed = self.boxed(server)
        command = (self._found(server, boxed), *server.command[1:])
        bash = [self._bash(boxed), "--noprofile", "--norc", "-c"]
        script = server.bounds.script(boxed=boxed) + 'exec "$@"'
        if not boxed:
            return tied(bash, script, *command)
        box = Sandbox(
            program=self.sandbox() or "",
            root=self.root,
            hidden=self.hidden,
            reads=server.reads,
            writable=server.writes,
            network=server.network,
            lasting=True,
        )
        return box.command([*bash, script, "bash", *command], self._inside(server))

    def environment(self, server: Server) -> dict[str, str]:
        """Of the program that we start; in a sandbox the server gets its own inside it."""
        return environment() if server.sandbox else {**environment(), **server.env}

    def _inside(self, server: Server) -> dict[str, str]:
        return {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": ON_PATH, **server.env}  # noqa: S108

    def _found(self, server: Server, boxed: bool) -> str:
        found = which(server.command[0], path=ON_PATH if boxed else None)
        if found is None:
            raise ToolFailed(
                f"The MCP server {server.name} cannot be run: there is no program "
                f"{server.command[0]} here. Tell the person."
            )
        return found

    def _bash(self, boxed: bool) -> str:
        found = which("bash", path=ON_PATH if boxed else None)
        if found is None:
            raise ToolFailed("MCP servers cannot be run: there is no bash on this server.")
        return found


@dataclass(kw_only=True)
class _Connected:
    link: Link
    found: Mapping[str, Definition]


class Connections:
    """Of one run, on its event loop. Close them; unused they hold nothing."""

    def __init__(
        self, launcher: Launcher, noticed: Noticed = _nobody, backoff: Backoff | None = None
    ) -> None:
        """`backoff` is shared with other runs; without it every run begins anew."""
        self.launcher = launcher
        self._noticed = noticed
        self._backoff = backoff or Backoff()
        self._open: dict[str, _Connected] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._failures: dict[str, int] = {}
        self._gone: list[Link] = []
        """Killed, and still to be waited for."""

    async def call(self, offer: Offer, arguments: dict[str, Any], progress: Progress) -> Answer:
        """What the tool answers. Raises ToolFailed."""
        try:
            return await self._called(offer, arguments, progress)
        except SessionEnded:
            return await self._called(offer, arguments, progress)

    async def _called(self, offer: Offer, arguments: dict[str, Any], progress: Progress) -> Answer:
        server = offer.server
        connected = await self._connected(server)
        self._check(offer, connected.found.get(offer.tool.name))
        try:
            result = await connected.link.call(offer.tool.name, arguments, progress)
        except BaseException as error:  # cancelled, too: what was asked of it is under way
            _log(server, error)
            if isinstance(error, Broken):
                self._failed(server, connected)
            if not isinstance(error, ToolFailed) or isinstance(error, Broken):
                self._drop(server, connected)  # cut off: what it does now has an end, too
                await connected.link.gone()
            raise
        self._backoff.worked(self._key(server))
        return await asyncio.to_thread(answer_of, result, server.scrub)  # it may be megabytes

    async def look(self, server: Server) -> Mapping[str, Definition]:
        """What the server says of its declared tools now. Raises ToolFailed."""
        return (await self._connected(server)).found

    async def close(self) -> None:
        """Every server is gone then."""
        links = [connected.link for connected in self._open.values()] + self._gone
        self._open, self._gone = {}, []
        await asyncio.gather(*(link.close() for link in links))

    # ── inside ────────────────────────────────────────────────────────────────────────────────

    async def _connected(self, server: Server) -> _Connected:
        async with self._opening.setdefault(server.name, asyncio.Lock()):
            connected = self._open.get(server.name)
            if connected is not None and not connected.link.alive:
                self._failed(server, connected)
                self._drop(server, connected)
                connected = None
            if connected is None:
                connected = self._open[server.name] = await self._begun(server)
            elif connected.link.list_changed:
                connected.found = await self._listed(server, connected.link)
            return connected

    async def _begun(self, server: Server) -> _Connected:
        if self._failures.get(server.name, 0) >= MAX_FAILURES:
            raise ToolFailed(
                f"The MCP server {server.name} did not begin {MAX_FAILURES} times and is not tried "
                "again in this run. Go on without it, and tell the person."
            )
        pause = math.ceil(self._backoff.pause(self._key(server)))
        if pause > 0:
            raise ToolFailed(
                f"The MCP server {server.name} failed {self._backoff.failures(self._key(server))} "
                f"times in a row and is not started again for {pause} seconds. Go on without it, or "
                "try it later, and tell the person."
            )
        self._failures[server.name] = self._failures.get(server.name, 0) + 1
        link_class, program = await asyncio.to_thread(self._prepared, server)
        link = link_class(
            server,
            program,
            cwd=self.launcher.root,
            env=self.launcher.environment(server),
        )
        try:
            await link.open()
            found = await self._listed(server, link)
        except BaseException as error:  # cancelled, too: a program that nobody owns would stay
            _log(server, error)
            link.kill()
            self._gone.append(link)
            if isinstance(error, Broken):
                self._backoff.failed(self._key(server))
            raise
        self._failures[server.name] = 0
        return _Connected(link=link, found=found)

    def _prepared(
        self, server: Server
    ) -> tuple[type[Link], AbstractContextManager[Wrapped] | None]:
        """What takes its time: call it in a thread."""
        # On first use: the SDK takes two seconds and 40 MB.
        from agent.mcp.link import Link

        return Link, None if server.location else self.launcher.program(server)

    async def _listed(self, server: Server, link: Link) -> Mapping[str, Definition]:
        found = definitions(server, await link.list_tools())
        await self._noticed(server, found)
        return found

    def _check(self, offer: Offer, now: Definition | None) -> None:
        what = f"The MCP server {offer.server.name}"
        if now is None:
            raise ToolFailed(f"{what} has no tool {offer.tool.name} any more. Go on without it.")
        if now.digest != offer.digest or now.problem:
            raise ToolFailed(
                f"{what} describes its tool {offer.tool.name} in another way than a person accepted,"
                " so it is not used until a person has looked at it. Go on without it, and tell the"
                " person."
            )

    def _key(self, server: Server) -> tuple[str, Path]:
        """Whose failures count together: what breaks in one workspace may work in another."""
        return server.name, self.launcher.root

    def _failed(self, server: Server, connected: _Connected) -> None:
        """Once for a connection, however many calls it breaks."""
        if self._open.get(server.name) is connected:
            self._backoff.failed(self._key(server))

    def _drop(self, server: Server, connected: _Connected) -> None:
        connected.link.kill()
        self._gone.append(connected.link)
        if self._open.get(server.name) is connected:
            del self._open[server.name]


def _log(server: Server, error: BaseException) -> None:
    """What a program wrote to stderr is for whoever runs this server, and for nobody else."""
    if isinstance(error, Broken) and error.errors:
        logger.warning("MCP server %s wrote: %s", server.name, error.errors)
