"""The stdio transport: a program of ours whose every end we own.

The SDK's own one inherits a part of our environment, reads lines of any length and cannot put its
program into a sandbox. Here the program has the environment of `agent.children`, lines have a
limit, stderr is read whatever comes, what it uses has bounds, and when the block is left the whole
group is dead.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from agent.bounds import Bounds
from agent.children import Wrapped, kill_group
from agent.mcp.messages import improper_answer, message_of
from agent.mcp.sieve import MESSAGE_BYTES, Sieve, TooMuch

BLOCK_BYTES = 64 * 1024
MAX_MESSAGE = 32 * 1024 * 1024
"""Bytes of one line."""
LARGE = 256 * 1024
"""Bytes above which a line is not read on the event loop."""
KEPT_ERRORS = 2048
"""Bytes of stderr: the end of it."""
ERRORS_PAUSE_BYTES = 1024 * 1024
ERRORS_PAUSE_SECONDS = 0.05
LOOK_SECONDS = 1.0
"""Between two looks at what it uses: a look costs a millisecond or two, as long as a run lasts."""
GOODBYE_SECONDS = 0.3
"""After its input is closed, before it is killed."""
DEATH_SECONDS = 2.0
"""For those in its sandbox, which die a moment after it."""

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class _Head(msgspec.Struct):
    """As much of a message as says what it is."""

    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    method: str | None = None


class Pipes:
    """One program and what is between us."""

    def __init__(self, sieve: Sieve, bounds: Bounds) -> None:
        self.trouble = ""
        """Why nothing comes any more, as a half sentence; empty while it does."""
        self.errors = bytearray()
        """The end of its stderr."""
        self._sieve = sieve
        self._bounds = bounds
        self._process: Process | None = None

    def kill(self) -> None:
        """The program and its group, at once."""
        if self._process is not None:
            kill_group(self._process.pid)

    @asynccontextmanager
    async def streams(
        self, program: AbstractContextManager[Wrapped], cwd: Path, env: dict[str, str]
    ) -> AsyncIterator[Streams]:
        """Run the program; what goes between the SDK's session and it. Raises OSError."""
        to_session, from_program = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_program, from_session = anyio.create_memory_object_stream[SessionMessage](0)
        with to_session, from_program, to_program, from_session, program as wrapped:
            transport, process = await _started(wrapped, cwd, env)
            self._process = process
            work = [
                asyncio.create_task(self._read(process, to_session)),
                asyncio.create_task(self._write(process, from_session, to_session)),
                asyncio.create_task(self._read_errors(process)),
                asyncio.create_task(self._hold(process)),
            ]
            try:
                yield from_program, to_program
            finally:
                await self._end(transport, process, work)

    async def _end(
        self,
        transport: asyncio.SubprocessTransport,
        process: Process,
        work: Sequence[asyncio.Task[None]],
    ) -> None:
        """First asked to go, then killed; a cancelled end kills at once."""
        try:
            assert process.stdin is not None
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await process.wait()
        finally:
            self.kill()
            for task in work:
                task.cancel()
            try:
                await asyncio.gather(*work, return_exceptions=True)
                await _silent(process)
            finally:
                transport.close()  # else wait() waits for whoever else has the pipes
                await process.wait()
                self._process = None  # its number may be somebody else's from now on

    async def _hold(self, process: Process) -> None:
        """Within its bounds, or not at all."""
        while process.returncode is None:
            broken = await asyncio.to_thread(self._bounds.broken_by, process.pid)
            if broken and process.returncode is None:
                self.trouble = self.trouble or broken
                self.kill()
                return
            await asyncio.sleep(LOOK_SECONDS)

    # ── what it says ──────────────────────────────────────────────────────────────────────────

    async def _read(
        self,
        process: Process,
        session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdout is not None
        with session:
            try:
                await self._read_lines(process.stdout, session)
            except TooMuch:
                self.trouble = "it said far more than it was asked"
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return  # the session is gone
            self.trouble = self.trouble or "it ended"
        self.kill()

    async def _read_lines(
        self,
        output: asyncio.StreamReader,
        session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        line = bytearray()
        while block := await output.read(BLOCK_BYTES):
            await self._sieve.heard(len(block))
            first, *more = block.split(b"\n")
            line += first
            for each in more:
                message = await self._message(bytes(line))
                if message is not None:
                    await self._sieve.heard(MESSAGE_BYTES)
                    await session.send(message)
                line = bytearray(each)
            if len(line) > MAX_MESSAGE:
                self.trouble = f"it sent a message of more than {MAX_MESSAGE:,} bytes"
                return

    async def _message(self, line: bytes) -> SessionMessage | None:
        """What passes the sieve. None: nothing that somebody waits for."""
        if len(line) >= LARGE:
            large = await asyncio.to_thread(message_of, line)
            return large if large and self._sieve.passes(large.message) else None
        try:
            head = msgspec.json.decode(line, type=_Head)
        except msgspec.MsgspecError:
            return improper_answer(line)  # what asks or tells passes the sieve or not at all
        if head.method and not self._sieve.admits(head.method, asks=head.id is not msgspec.UNSET):
            return None
        return message_of(line)

    async def _read_errors(self, process: Process) -> None:
        assert process.stderr is not None
        read = 0
        while block := await process.stderr.read(BLOCK_BYTES):
            self.errors += block
            del self.errors[:-KEPT_ERRORS]
            read += len(block)
            if read > ERRORS_PAUSE_BYTES:  # who floods us waits for us
                read = 0
                await asyncio.sleep(ERRORS_PAUSE_SECONDS)

    # ── what we say ───────────────────────────────────────────────────────────────────────────

    async def _write(
        self,
        process: Process,
        messages: MemoryObjectReceiveStream[SessionMessage],
        session: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        assert process.stdin is not None
        with messages:
            async for each in messages:
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    process.stdin.write(text.encode("utf-8", "replace") + b"\n")
                    await process.stdin.drain()
                except (BrokenPipeError, ConnectionResetError):
                    self.trouble = self.trouble or "it does not listen any more"
                    break
        session.close()


async def _silent(process: Process) -> None:
    """Until nobody has its output any more, which is when all that it started are dead; but for
    one that left its group, which could wait for ever."""
    assert process.stdout is not None
    with suppress(TimeoutError):
        async with asyncio.timeout(DEATH_SECONDS):
            while await process.stdout.read(BLOCK_BYTES):
                pass


async def _started(
    wrapped: Wrapped, cwd: Path, env: dict[str, str]
) -> tuple[asyncio.SubprocessTransport, Process]:
    """As `create_subprocess_exec`, with the transport, which alone can give up the pipes."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: SubprocessStreamProtocol(limit=BLOCK_BYTES, loop=loop),
        *wrapped.arguments,
        cwd=cwd,
        env=env,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        pass_fds=wrapped.pass_fds,
        start_new_session=True,
    )
    return transport, Process(transport, protocol, loop)
