"""When the watcher looks: who waits for the end of a run is begun then, and else nobody asks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType

import pytest
from pytest_django import Settings

from tasks.conf import conf
from tasks.hub import Hub
from tests.support.counting import written
from tests.support.runs import House
from tests.support.turns import DONE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nobody_looks_unasked(settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), watch_seconds=3600, max_active_runs=2)


@dataclass
class Looks:
    count: int = 0


@contextmanager
def looks() -> Iterator[Looks]:
    """Each begins with what is followed here."""
    found = Looks()

    def note(frame: FrameType, event: str, argument: object) -> None:
        found.count += event == "call" and frame.f_code is Hub.followed.__code__

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def test_the_end_of_a_run_that_nobody_waits_for_needs_no_look(house: House) -> None:
    async with house.runner(*[DONE] * 4) as runner:
        first = await house.ask()  # with the look that a start begins with
        await house.until(first.task_id, "completed")
        await house.rest(runner)
        with looks() as made:
            for _ in range(3):
                created = await house.ask()
                runner.wake(str(created.task_id))
                await house.until(created.task_id, "completed")
                await house.rest(runner)
    assert made.count <= 1  # behind the first one, which the start may have found


async def test_what_waits_for_its_session_is_begun_at_the_end_of_what_runs(house: House) -> None:
    async with house.runner(*[DONE] * 3) as runner:
        first = await house.ask()
        await house.until(first.task_id, "completed")
        asked = [await house.ask(session_id=first.session_id, when_busy="queue") for _ in range(2)]
        for created in asked:
            runner.wake(str(created.task_id))
        for created in asked:
            await house.until(created.task_id, "completed")


async def test_what_found_no_place_is_begun_when_one_is_free(house: House) -> None:
    async with house.runner(*[DONE] * 7) as runner:
        first = await house.ask()
        await house.until(first.task_id, "completed")
        asked = [await house.ask() for _ in range(6)]
        for created in asked:
            runner.wake(str(created.task_id))
        for created in asked:
            await house.until(created.task_id, "completed")


async def test_a_task_with_one_answer_takes_few_statements(house: House) -> None:
    """Of the writer, about our tables; it took twenty-six."""
    async with house.runner(*[DONE] * 2) as runner:
        first = await house.ask()  # with the look that a start begins with
        await house.until(first.task_id, "completed")
        await house.rest(runner)
        async with written() as statements:
            created = await house.ask()
            runner.wake(str(created.task_id))
            await house.until(created.task_id, "completed")
            await house.rest(runner)
    await house.check(created.task_id)
    assert len(statements) <= 15, "\n".join(statements)
