"""Followers that never read, of an answer that is being written: what each costs the server.

Measured from outside, as resident memory over many such followers; the same answer with one of them
comes first, so that what an answer costs which is followed at all does not count.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Model
from tests.support.provider_server import SSE, ProviderServer, Request, delta
from tests.support.waiting import happened

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
ANSWER = 3 * MIB
PIECE = "word " * 100


async def long_answer(request: Request) -> None:
    await request.head(200, SSE)
    for _ in range(ANSWER // len(PIECE)):
        await request.events(delta(PIECE))
    await request.events(delta("", "stop"), "[DONE]")
    await request.end()


@pytest.fixture
async def house(tmp_path: Path, furnished: Furnished) -> AsyncIterator[House]:
    async with ProviderServer(long=long_answer) as provider:
        env = {"PILOTHOUSE_LLM_BASE_URL": provider.url("long")}
        house = House(tmp_path / "house", furnished, Model(), env=env)
        await asyncio.to_thread(house.server.start)
        try:
            yield house
        finally:
            await asyncio.to_thread(house.server.kill9)


def resident(house: House) -> int:
    pages = Path(f"/proc/{house.server.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def sockets(house: House) -> int:
    links = Path(f"/proc/{house.server.pid}/fd").iterdir()
    return sum("socket:" in str(link.resolve()) for link in links)


def unread(house: House, task_id: str) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    connection.connect(("127.0.0.1", house.server.port))
    token = house.tokens["alice"]
    connection.sendall(
        f"GET /api/tasks/{task_id}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    return connection


@asynccontextmanager
async def answered(house: House, alice: Person, followers: int) -> AsyncIterator[None]:
    """After an answer, with so many that have it before them and do not read."""
    task = await alice.ask(house.desk(), "Go on")
    connections = [unread(house, task["id"]) for _ in range(followers)]
    try:
        await alice.until(task["id"], "completed")
        yield
    finally:
        for connection in connections:
            connection.close()


async def check(house: House, followers: int, seconds: float = 0) -> None:
    async with house.person("alice") as alice:
        for _ in range(2):  # until the allocator has what an answer takes that is followed
            async with answered(house, alice, 1):
                alone = resident(house)
        before = sockets(house)
        async with answered(house, alice, followers):
            await asyncio.sleep(seconds)
            # What is being sent in this moment is over soon; what they cost stays.
            await happened(lambda: resident(house) - alone < followers * MIB)
        await happened(lambda: sockets(house) < before + 8)  # nobody who left is kept
        after = await alice.ask(house.desk(), "Go on")  # and the server serves
        await alice.until(after["id"], "completed")


async def test_a_follower_that_does_not_read_costs_less_than_a_mebibyte(house: House) -> None:
    await check(house, followers=40)


@pytest.mark.long
async def test_a_hundred_followers_that_read_nothing_for_a_minute(house: House) -> None:
    await check(house, followers=100, seconds=60)
