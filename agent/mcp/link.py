"""One connection to one MCP server: the SDK's session with an owner.

The SDK's task groups must be left by the task that entered them, so one task opens the connection,
waits, and closes it; whoever calls only talks to it. That task belongs to the Link, and the Link to
the connections of one run. `close()` ends it; `kill()` does at once what can be done at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, METHOD_NOT_FOUND, Implementation
from pydantic import ValidationError

from agent.children import Wrapped
from agent.errors import ToolFailed
from agent.mcp import remote
from agent.mcp.declared import Server
from agent.mcp.pipes import MAX_MESSAGE, Pipes
from agent.mcp.results import Broken, SessionEnded, causes, pages_of
from agent.mcp.sieve import Sieve, Sifted
from agent.text import cut

Progress = Callable[[str, float | None, float | None], None]
MAX_PAGES = 50
MAX_LISTED = 5000
"""Tools of one server that are looked at."""
CLOSE_SECONDS = 5.0
CONNECTION_ENDED = "Connection closed"
"""The SDK's words: servers use its code for errors of their own."""
_US = Implementation(name="pilothouse", version="1")

logging.getLogger("mcp").setLevel(logging.CRITICAL)
"""What it logs are a stranger's words, and perhaps our secrets; failures are told as results."""


class Link:
    """A connection that is opened once."""

    def __init__(
        self,
        server: Server,
        program: AbstractContextManager[Wrapped] | None,
        *,
        cwd: Path,
        env: dict[str, str],
    ) -> None:
        """`program` is how to run a server that is one."""
        self._server = server
        self._program = program
        self._cwd = cwd
        self._env = env
        self._sieve = Sieve()
        self._pipes = Pipes(self._sieve, server.bounds)
        self._refusals = remote.Refusals()
        self._closing = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None
        self._dispatcher: JSONRPCDispatcher | None = None
        self._version = ""
        """Of the protocol, as it was agreed."""

    @property
    def alive(self) -> bool:
        """It may still answer."""
        return self._dispatcher is not None and not self._pipes.trouble

    @property
    def list_changed(self) -> bool:
        """The server said that its tools are others since they were listed."""
        return self._sieve.list_changed

    @property
    def errors(self) -> str:
        """The end of what its program wrote to stderr, for people."""
        return self._server.scrub(self._pipes.errors.decode("utf-8", "replace")).strip()

    async def open(self) -> None:
        """Connect and shake hands, within the server's time. Raises Broken."""
        self._owner = asyncio.create_task(self._own())
        try:
            async with asyncio.timeout(self._server.start_seconds):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.kill()
            raise self._broken(
                f"it did not answer within {self._server.start_seconds:g} seconds"
            ) from None
        except BaseException:
            self.kill()
            raise

    async def close(self) -> None:
        """Its program is dead then, and its task has ended."""
        self._closing.set()
        if self._owner is None:
            return
        done, _ = await asyncio.wait({self._owner}, timeout=CLOSE_SECONDS)
        if not done:
            self.kill()
            await self.gone()

    def kill(self) -> None:
        """At once; `close()` waits for the rest."""
        self._closing.set()
        self._pipes.kill()
        if self._owner is not None:
            self._owner.cancel()

    async def gone(self) -> None:
        """Waits for the end of what was killed."""
        if self._owner is not None:
            await asyncio.wait({self._owner})

    # ── talking ───────────────────────────────────────────────────────────────────────────────

    async def list_tools(self) -> list[Any]:
        """What the server lists, as it says it. Raises Broken."""
        self._sieve.list_changed = False
        listed: list[Any] = []
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._server.start_seconds):
                for _ in range(MAX_PAGES):
                    params = {"cursor": cursor} if cursor else {}
                    tools, following = pages_of(await self._ask("tools/list", params))
                    listed += tools
                    if following in (None, cursor) or len(listed) > MAX_LISTED:
                        break
                    cursor = following
        except TimeoutError:
            raise self._broken(
                f"it did not list its tools within {self._server.start_seconds:g} seconds"
            ) from None
        return listed[:MAX_LISTED]

    async def call(
        self, tool: str, arguments: dict[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """The result of a call, as the server says it. Raises ToolFailed where it answers with an
        error, Broken where it does not answer."""

        async def tell(done: float, total: float | None, text: str | None) -> None:
            progress(cut(self._server.scrub(text or ""), 200), done, total)

        try:
            async with asyncio.timeout(self._server.seconds):
                return await self._ask("tools/call", {"name": tool, "arguments": arguments}, tell)
        except TimeoutError:
            raise self._broken(
                f"it did not answer within {self._server.seconds:g} seconds; whether the call had "
                "an effect is not known"
            ) from None

    async def _ask(
        self, method: str, params: dict[str, Any], progress: Any = None
    ) -> dict[str, Any]:
        if self._dispatcher is None:
            raise self._broken("there is no connection")
        self._sieve.asked()
        with self._refusals.of_call() as (named, refusal):
            # No farewell for a request that is given up: its connection is given up with it.
            options: Any = {
                "cancel_on_abandon": False,
                "headers": {"mcp-protocol-version": self._version, **named},
            }
            if progress is not None:
                options["on_progress"] = progress
            try:
                return await self._dispatcher.send_raw_request(method, params, options)
            except MCPError as error:
                raise self._failure(error, refusal) from None

    def _failure(self, error: MCPError, refusal: remote.Refusal) -> ToolFailed:
        ended = error.code == CONNECTION_CLOSED and error.message == CONNECTION_ENDED
        if ended or not self.alive:
            return self._broken(self._pipes.trouble or "the connection ended")
        said = cut(self._server.scrub(error.message), 2000)
        status = f" (HTTP {refusal.status})" if refusal.status else ""
        told = f"The MCP server {self._server.name} answered with an error: {said}{status}"
        return self._kind_of(error, refusal)(told)

    def _kind_of(self, error: MCPError, refusal: remote.Refusal) -> type[ToolFailed]:
        """404 says that the session is over. Some servers say it in words, under 400: what those did
        with the call is not certain enough to ask again."""
        if not refusal.in_session:
            return ToolFailed
        if refusal.status == 404 and error.code != METHOD_NOT_FOUND:
            return SessionEnded
        in_words = refusal.status == 400 and "session" in error.message.lower()
        return Broken if in_words else ToolFailed

    # ── the owner ─────────────────────────────────────────────────────────────────────────────

    async def _own(self) -> None:
        """Open, wait, close, all in this one task."""
        try:
            async with self._streams() as (reading, writing):
                dispatcher = JSONRPCDispatcher(reading, writing)
                async with ClientSession(dispatcher=dispatcher, client_info=_US) as session:
                    self._version = (await session.initialize()).protocol_version
                    self._dispatcher = dispatcher
                    self._settle(None)
                    await self._closing.wait()
        except asyncio.CancelledError:
            self._settle(self._broken("it was stopped"))
            raise
        except Exception as error:  # noqa: BLE001  the boundary: whatever the SDK raises, it is gone
            self._settle(self._broken(self._why(error)))
        finally:
            self._dispatcher = None

    def _settle(self, failure: ToolFailed | None) -> None:
        if self._ready.done():
            return
        if failure is None:
            self._ready.set_result(None)
        else:
            self._ready.set_exception(failure)
            self._ready.exception()  # somebody may have stopped waiting for it

    @asynccontextmanager
    async def _streams(
        self,
    ) -> AsyncIterator[tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]]:
        if self._program is not None:
            async with self._pipes.streams(self._program, self._cwd, self._env) as streams:
                yield streams
            return
        location = self._server.location
        assert location is not None
        await remote.address_of(location.host, location.port, private=self._server.private)
        http = remote.client(
            location,
            self._server.headers,
            private=self._server.private,
            seconds=self._server.seconds,
            refusals=self._refusals,
        )
        async with (
            http,
            streamable_http_client(
                location.url, http_client=http, max_sse_event_size=MAX_MESSAGE
            ) as (reading, writing),
        ):
            yield Sifted(reading, self._sieve), writing

    def _why(self, error: Exception) -> str:
        """A half sentence without a stranger's words."""
        if any(isinstance(cause, ValidationError | RuntimeError) for cause in causes(error)):
            return "it does not speak MCP properly"  # and was ended for it
        if self._pipes.trouble:
            return f"it did not begin: {self._pipes.trouble}"
        for cause in causes(error):
            if isinstance(cause, remote.NotPublic):
                return "its address is refused by policy: it is not on the public network"
            if isinstance(cause, httpx2.HTTPError):
                return "it could not be reached"
            if isinstance(cause, OSError):
                return f"it could not be started ({cause.strerror or type(cause).__name__})"
            if isinstance(cause, MCPError):
                return "it does not speak MCP properly"
        return f"the connection broke ({type(error).__name__})"

    def _broken(self, why: str) -> Broken:
        return Broken(f"The MCP server {self._server.name} could not be used: {why}.", self.errors)
