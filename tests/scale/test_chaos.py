"""`make chaos`: a random process dies every second, and people get what they asked for all the same.

Two web processes and three workers. Afterwards the database and the clients' own records prove it:
every task has ended, sequences have no gap, chains are valid, no effect happened twice, every
client saw every stored event once. How long a task was without an owner is printed.
"""

from __future__ import annotations

import asyncio
import random
import socket
import statistics
import time
from contextlib import AsyncExitStack
from datetime import datetime

import pytest

from tests.e2e.test_crashes import Work, check_persisted, persist
from tests.support.daphne import Daphne
from tests.support.e2e import Person
from tests.support.scaled import ScaledHouse

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "seconds", [6, pytest.param(180, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
)
async def test_a_random_process_dies_every_second(
    house: ScaledHouse, alice: Person, seconds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    works = [Work(house, alice, f"chaos-{seconds}-{number}") for number in range(6 + seconds // 3)]
    for server in house.server.all:
        server.env["E2E_DAWDLE"] = "0.3"
    third = house.worker(2)
    house.server.workers.append(third)
    chance, deaths = random.Random(), dict[str, float]()
    try:
        with third:
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as people:
                for work in works:
                    people.create_task(persist(work, stack, chance.uniform(0, seconds)))
                await kill(house, chance, seconds, deaths)
            for work in works:
                await check_persisted(work)
            await house.check_nobody_is_left()
            report(await ownerless(works, deaths), len(deaths), capsys)
    finally:
        house.server.workers.remove(third)


async def kill(
    house: ScaledHouse, chance: random.Random, seconds: int, deaths: dict[str, float]
) -> None:
    """Every second one of those that run; it is started again at once. In the end all are there."""
    for _ in range(seconds):
        await asyncio.sleep(1)
        victim: Daphne = chance.choice(house.server.all)
        victim.kill9()
        deaths[f"{socket.gethostname()}:{victim.pid}"] = time.time()
        victim.launch()
    for server in house.server.all:
        await asyncio.to_thread(server.wait_until_ready)


async def ownerless(works: list[Work], deaths: dict[str, float]) -> list[float]:
    """Seconds from the death of each worker to the next run of a task that it held."""
    gaps = []
    for work in works:
        for event in await work.alice.events(work.id):
            previous = event["payload"].get("previous_worker")
            if event["type"] == "task_recovered" and previous in deaths:
                began = datetime.fromisoformat(event["created_at"]).timestamp()
                gaps.append(began - deaths[previous])
    return gaps


def report(gaps: list[float], kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        text = f"\n{kills} processes killed, {len(gaps)} runs taken over"
        if gaps:
            text += f"; without an owner: median {statistics.median(gaps):.1f} s, most {max(gaps):.1f} s"
        print(text)  # noqa: T201 - the report
