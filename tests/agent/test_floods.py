"""More than anybody can use, from a model, a command or a file: taken at our pace, or cut while it
comes. Counted in bytes."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from agent.messages import UserMessage
from agent.providers import ModelRequest
from agent.providers.client import make_client
from agent.providers.openai import OpenAIProvider
from agent.toolbox import ToolContext, ToolResult
from agent.tools.files import READ_FILE
from agent.tools.output import HEAD_BYTES, TAIL_BYTES, Output
from agent.workspace import Workspace
from tests.support.provider_server import SSE, ProviderServer, Request, delta

MIB = 1024 * 1024
OFFERED = 48 * MIB


class Flood:
    """A model that sends as fast as it is read, and how much of it was."""

    def __init__(self) -> None:
        self.sent = 0

    async def play(self, request: Request) -> None:
        await request.head(200, SSE)
        chunk = b"data: %s\n\n" % _comment(16 * 1024)
        await request.events(delta("Hello. "))
        while self.sent < OFFERED:
            await request.chunk(chunk)
            self.sent += len(chunk)
        await request.events(delta("", "stop"), "[DONE]")
        await request.end()

    async def stopped(self) -> int:
        """How much was sent when nothing more could be."""
        before = -1
        while self.sent != before:
            before = self.sent
            await asyncio.sleep(0.2)
        return before


def _comment(size: int) -> bytes:
    return b'{"choices":[],"padding":"' + b"x" * size + b'"}'


def ask() -> ModelRequest:
    numbers = itertools.count(1)
    return ModelRequest(
        system="",
        messages=(UserMessage(text="Hi"),),
        tools=(),
        step=1,
        new_block_id=lambda: f"b{next(numbers)}",
    )


async def test_a_model_that_floods_is_read_only_as_fast_as_it_is_used() -> None:
    """Who takes a delta and is busy with it makes the model wait: what is under way fits into the
    buffers of two sockets."""
    flood = Flood()
    async with ProviderServer(flood=flood.play) as server, make_client() as client:
        provider = OpenAIProvider(client, base_url=server.url("flood"), model="m")
        async with aclosing(provider.stream(ask())) as stream:
            await anext(stream)
            waiting = await flood.stopped()
            assert waiting < OFFERED / 2
            async for _ in stream:
                pass
    assert flood.sent >= OFFERED


@contextmanager
def peak() -> Iterator[list[int]]:
    """The most memory that the block held at once, beyond what there was."""
    found: list[int] = []
    tracemalloc.start()
    try:
        yield found
        found.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_a_command_that_prints_a_gigabyte_is_cut_while_it_prints() -> None:
    output, block = Output(), b"x" * MIB
    with peak() as memory:
        for _ in range(1024):
            output.add(block)
        text = output.text()
    assert output.total == 1024 * MIB
    assert len(text) < HEAD_BYTES + TAIL_BYTES + 200
    assert memory[0] < 4 * MIB


async def test_a_file_of_a_gigabyte_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        for _ in range(9):
            file.write(b"a line of text\n" * (MIB // 15))
        file.truncate(1024 * MIB)
    context = ToolContext(workspace=Workspace(tmp_path))
    with peak() as memory:
        result = await asyncio.to_thread(READ_FILE.run, {"path": "huge.txt"}, context)
    assert isinstance(result, ToolResult)
    assert len(result.content) < MIB
    assert memory[0] < 128 * MIB
