from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import partial

import pytest

from tasks.errors import NotFound
from tasks.lane import MOMENT, NEAR, Lane, in_lane, lent_lane, nearest
from tests.support.counting import circles

said: ContextVar[str] = ContextVar("said", default="nothing")


@pytest.fixture
def lane() -> Iterator[Lane]:
    lane = Lane("a lane")
    yield lane
    lane.shutdown()


async def test_a_request_asks_in_its_lane_and_gets_what_came_of_it(lane: Lane) -> None:
    lent_lane.set(lane)
    assert (await in_lane(threading.current_thread)).name == "a lane"
    assert await in_lane(int, "12", base=8) == 10
    with pytest.raises(ZeroDivisionError):
        await in_lane(divmod, 1, 0)


async def test_a_refusal_leaves_nothing_to_the_collector(lane: Lane) -> None:
    def refuse() -> None:
        raise NotFound("task")

    lent_lane.set(lane)
    with circles() as found:
        with suppress(NotFound):
            await in_lane(refuse)
        await in_lane(int)  # the lane has forgotten its last job
    assert not found


async def test_a_job_that_finds_nothing_next_is_a_failure_and_no_end_of_waiting(lane: Lane) -> None:
    lent_lane.set(lane)
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(10):
            await in_lane(next, iter(()))


async def test_without_a_lane_it_is_asked_where_django_asks() -> None:
    assert await in_lane(threading.current_thread) is not threading.current_thread()


async def test_it_sees_what_the_asker_has_set(lane: Lane) -> None:
    lent_lane.set(lane)
    said.set("something")
    assert await in_lane(said.get) == "something"


async def test_jobs_are_done_in_their_order_whoever_gives_them(lane: Lane) -> None:
    done: list[int] = []
    last = [lane.ask(partial(done.append, 0)), lane.ask(partial(done.append, 1))]
    lane.submit(done.append, 2).result(10)
    await asyncio.gather(*last)
    assert done == [0, 1, 2]


async def test_who_stops_waiting_stops_nothing(lane: Lane) -> None:
    held, done = threading.Event(), threading.Event()
    lane.submit(held.wait, 10)
    asked = lane.ask(done.set)
    asked.cancel()
    held.set()
    await asyncio.wrap_future(lane.submit(int))
    assert done.is_set()
    await asyncio.sleep(0)  # the late answer comes, and disturbs nobody


async def test_a_job_that_is_cancelled_in_time_is_not_done(lane: Lane) -> None:
    held, done = threading.Event(), threading.Event()
    lane.submit(held.wait, 10)
    assert lane.submit(done.set).cancel()
    held.set()
    await asyncio.wrap_future(lane.submit(int))
    assert not done.is_set()


async def test_behind_the_end_nothing_is_taken_and_what_waits_is_done() -> None:
    lane, held = Lane("short"), threading.Event()
    lane.submit(held.wait, 10)
    waiting = lane.submit(int, "7")
    lane.shutdown(wait=False)
    with pytest.raises(RuntimeError):
        lane.submit(int)
    with pytest.raises(RuntimeError):
        lane.ask(int)
    held.set()
    assert await asyncio.wrap_future(waiting) == 7
    lane.shutdown()


class Held:
    """A job that lasts until it is let go."""

    def __init__(self) -> None:
        self.begun, self._held = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self._held.wait(10)

    def let_go(self) -> None:
        self._held.set()


@pytest.fixture
def lanes() -> Iterator[list[Lane]]:
    three = [Lane(f"lane-{number}") for number in range(3)]
    yield three
    for lane in three:
        lane.shutdown()


async def test_behind_what_may_be_long_nobody_waits_while_another_lane_sleeps(
    lanes: list[Lane],
) -> None:
    busy, idle, other = lanes
    long = Held()
    first = busy.submit(long)
    assert long.begun.wait(10)
    idle.requests = 1
    assert nearest(lanes, busy.began) is other
    other.requests = 2
    assert nearest(lanes, busy.began) is idle
    long.let_go()
    await asyncio.wrap_future(first)


async def test_questions_that_come_together_wake_one_lane_and_few_wait_there(
    lanes: list[Lane],
) -> None:
    asleep, awake, _ = lanes
    question = Held()
    waiting = [awake.ask(question)]
    assert question.begun.wait(10)
    at_once = awake.began + MOMENT / 2
    for _ in range(NEAR - 1):
        assert nearest(lanes, at_once) is awake
        waiting.append(awake.ask(lambda: None))
    assert nearest(lanes, at_once) is asleep
    question.let_go()
    await asyncio.gather(*waiting)


async def test_a_question_that_takes_long_holds_up_no_other(lanes: list[Lane]) -> None:
    asleep, awake, _ = lanes
    question = Held()
    waiting = awake.ask(question)
    assert question.begun.wait(10)
    assert nearest(lanes, awake.began + 2 * MOMENT) is asleep
    question.let_go()
    await waiting


async def test_a_lane_is_near_again_behind_a_long_call(lanes: list[Lane]) -> None:
    lane = lanes[1]
    await asyncio.wrap_future(lane.submit(int))
    question = Held()
    waiting = lane.ask(question)
    assert question.begun.wait(10)
    assert nearest(lanes, lane.began) is lane
    question.let_go()
    await waiting
