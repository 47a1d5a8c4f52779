"""`make chaos`: a random process dies every second, and people get what they asked for all the same.

Two web processes and three workers. Afterwards the database and the clients' own records prove it:
every task has ended, sequences have no gap, chains are valid, no effect happened twice, every
client saw every stored event once. How long a task was without an owner is printed.
"""

from __future__ import annotations

import asyncio
import math
import random
import re
import socket
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.support.daphne import Daphne
from tests.support.e2e import Person
from tests.support.persisting import check_persisted, persist
from tests.support.scaled import ScaledHouse, Worker
from tests.support.stages import Work

pytestmark = pytest.mark.e2e

STARTING = 0.1
"""How many of those that are killed may be starting."""
STARTED = """
    SELECT extract(epoch FROM min(at)) FROM procrastinate_events
    JOIN procrastinate_jobs ON procrastinate_jobs.id = job_id
    WHERE type = 'started' AND queueing_lock = ? AND at > to_timestamp(?)"""
LOG_TIME = "%Y-%m-%d %H:%M:%S,%f"


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
            report(await ownerless(house, works, deaths), len(deaths), capsys)
    finally:
        house.server.workers.remove(third)


async def kill(
    house: ScaledHouse, chance: random.Random, seconds: int, deaths: dict[str, float]
) -> None:
    """Every second one; it is started again at once. In the end all are there.

    Mostly one that works: on a busy machine a start takes longer than a second, and processes that
    are killed as they start would be all that there is.
    """
    for _ in range(seconds):
        await asyncio.sleep(1)
        everybody: list[Daphne] = house.server.all
        at_work = [server for server in everybody if await asyncio.to_thread(server.answers)]
        victim = chance.choice(everybody if chance.random() < STARTING or not at_work else at_work)
        victim.kill9()
        deaths[f"{socket.gethostname()}:{victim.pid}"] = time.time()
        victim.launch()
    for server in house.server.all:
        await asyncio.to_thread(server.wait_until_ready)


@dataclass(frozen=True)
class Gap:
    """From the death of a worker to the start of the next job of a task that it was running."""

    seconds: float
    served: float
    """So long of it some worker was there to take the task over."""


async def ownerless(house: ScaledHouse, works: list[Work], deaths: dict[str, float]) -> list[Gap]:
    lives = [
        (began, deaths.get(name, math.inf))
        for worker in house.server.workers
        for name, began in starts(worker).items()
    ]
    gaps = []
    for work in works:
        for event in await work.alice.events(work.id):
            previous = event["payload"].get("previous_worker")
            if event["type"] == "task_recovered" and previous in deaths:
                died = deaths[previous]
                # Whoever has the job has the task, also if he dies before he could say so.
                ((taken,),) = house.sql(STARTED, f"task:{work.id}", died)
                gaps.append(Gap(float(taken) - died, covered(lives, died, float(taken))))
    return gaps


def starts(worker: Worker) -> dict[str, float]:
    """When each process of this worker began to take runs, by its name."""
    found = re.findall(r"(?m)^(\S+ \S+) .* Worker (\S+) takes up to", worker.log)
    return {name: datetime.strptime(at, LOG_TIME).timestamp() for at, name in found}  # noqa: DTZ007


def covered(lives: list[tuple[float, float]], start: float, end: float) -> float:
    """How much of the time between the two at least one of them lived."""
    total = 0.0
    for began, died in sorted(lives):
        low, high = max(began, start), min(died, end)
        total += max(0.0, high - low)
        start = max(start, high)
    return total


def report(gaps: list[Gap], kills: int, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"\n{kills} processes killed, {len(gaps)} runs taken over"
    for title, seconds in (
        ("without an owner", [gap.seconds for gap in gaps]),
        ("of that with a worker there", [gap.served for gap in gaps]),
    ):
        if gaps:
            text += (
                f"; {title}: median {statistics.median(seconds):.1f} s, most {max(seconds):.1f} s"
            )
    with capsys.disabled():
        print(text)  # noqa: T201 - the report
