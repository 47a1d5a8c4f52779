"""SIGTERM in the middle of work: a quick, quiet end, and the next start goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import httpx
import pytest

from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Call, Hold, Model, words
from tests.support.held import Gate
from tests.support.sse import TERMINAL, open_stream
from tests.support.waiting import happened

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def stopping(
    tmp_path_factory: pytest.TempPathFactory, furnished: Furnished, model: Model
) -> Iterator[House]:
    env = {"E2E_GATES": "1", "PILOTHOUSE_DRAIN_SECONDS": "2"}
    application = "tests.support.held:application"
    house = House(
        tmp_path_factory.mktemp("stopping"), furnished, model, env=env, application=application
    )
    with house.server:
        yield house
        assert "Traceback" not in house.server.log


@pytest.fixture
def house(stopping: House) -> House:
    return stopping


async def test_sigterm_in_mid_work_and_the_next_start_finishes_it(
    house: House, alice: Person
) -> None:
    """One task waits, one speaks, one writes: the write may end, the rest goes on afterwards."""
    pause, answer = Hold(), "".join(f"w{number} " for number in range(20))
    write = Call("write_file", path="out.txt", content="x")
    talks = house.model.script("talks", [*words(10), pause, *words(20)[10:]])
    writes = house.model.script("writes", [write], [*words(20)])
    desks = [house.desk() for _ in range(3)]
    tasks = [
        await alice.ask(desk, f"[{name}] Go")
        for desk, name in zip(desks, (talks, writes, writes), strict=True)
    ]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(alice.follow(t["id"])) for t in tasks]
        plain = [await _read(alice, stack, task["stream_url"]) for task in tasks]
        gate = Gate(desks[1].folder, "out.txt.before").close()
        await alice.approve(await clients[1].approval())
        await happened(gate.reached.exists)
        await clients[2].approval()
        await clients[0].words(10)
        began = time.monotonic()
        house.server.process.terminate()
        await asyncio.sleep(0.5)
        gate.open()
        assert await asyncio.to_thread(house.server.wait, 20) == 0
        assert time.monotonic() - began < 8
        for reading in plain:
            assert not set(await reading) & set(TERMINAL), "an end of the line is no end of a task"
        assert desks[1].text("out.txt") == "x", "a tool gets its time"
        pause.release()
        await house.restart()
        await clients[0].end()
        await clients[1].end()
        await alice.approve(await clients[2].approval())
        await clients[2].end()
    for task, client in zip(tasks, clients, strict=True):
        log = await house.check(alice, task["id"], client)
        assert (await alice.task(task["id"]))["final_answer"] == answer
        assert sum(event["type"] == "tool_call_started" for event in log) <= 1
        assert "unknown_effect" not in str(log)


async def _read(alice: Person, stack: AsyncExitStack, url: str) -> asyncio.Task[list[str]]:
    """A client that reads once and does not come back."""
    received = await stack.enter_async_context(open_stream(alice.http, url))
    ready = asyncio.Event()

    async def read() -> list[str]:
        types = []
        async for event in received:
            types.append(event.type)
            ready.set()
        return types

    reading = asyncio.create_task(read())
    await ready.wait()
    return reading


async def test_a_tool_that_does_not_end_is_put_to_a_person(house: House, alice: Person) -> None:
    desk = house.desk()
    write = Call("write_file", path="out.txt", content="x")
    name = house.model.script("stuck", [write], ["Done."])
    task = await alice.ask(desk, f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        gate = Gate(desk.folder, "out.txt.before").close()
        await alice.approve(await client.approval())
        await happened(gate.reached.exists)
        began = time.monotonic()
        house.server.process.terminate()
        await asyncio.to_thread(house.server.wait, 20)
        assert time.monotonic() - began < 8
        with pytest.raises(httpx.ConnectError):
            await alice.http.get("/healthz")
        gate.open()
        await house.restart()
        question = await client.seen("approval_required", 2)
        assert question.payload["kind"] == "unknown_effect"
        assert desk.text("out.txt") is None
        await alice.approve(question.payload["approval_id"], answer="retry")
        await client.end()
    assert desk.text("out.txt") == "x"
    assert Gate(desk.folder, "out.txt").calls == 1
    await house.check(alice, task["id"], client)
