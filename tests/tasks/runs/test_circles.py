"""However a run ends, nothing of it is left in circles of references. These stay until the collector
looks through everything that lives, which on a busy server is minutes later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from agent.providers.scripted import Turn
from tasks import service
from tests.support.counting import circles
from tests.support.runs import House
from tests.support.turns import DONE, READ, WRITE

pytestmark = pytest.mark.django_db(transaction=True)

SILENT = Turn(text="Let me think.", hang=True)


async def complete(house: House) -> None:
    created = await house.ask()
    await house.until(created.task_id, "completed")


async def be_approved(house: House) -> None:
    created = await house.ask()
    await house.until(created.task_id, "waiting_approval")
    await house.reply((await house.pending(created.task_id)).pk)
    await house.until(created.task_id, "completed")


async def be_cancelled(house: House) -> None:
    created = await house.ask()
    await house.until(created.task_id, lambda task: task.last_sequence == 3)
    await service.cancel(created.task_id, house.alice.pk)
    await house.until(created.task_id, "cancelled")


@pytest.mark.parametrize(
    ("turns", "live"),
    [([READ, DONE], complete), ([WRITE, DONE], be_approved), ([SILENT], be_cancelled)],
    ids=["completed", "approved", "cancelled"],
)
async def test_a_run_leaves_nothing_to_the_collector(
    house: House, turns: list[Turn], live: Callable[[House], Awaitable[None]]
) -> None:
    async with house.runner(*turns * 4) as runner:
        await live(house)  # what is made once in a process
        await house.rest(runner)
        with circles() as found:
            for _ in range(3):
                await live(house)
            await house.rest(runner)
    assert not found
