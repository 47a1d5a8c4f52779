"""Waits with a limit: what ends them, who is told, and that one timer serves them all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.waits import BREATH_SECONDS, Limit, Waits

NEVER = 1e9


def now() -> float:
    return asyncio.get_running_loop().time()


async def nothing() -> None:
    await asyncio.Event().wait()


async def word() -> str:
    return "word"


async def test_it_gives_what_was_waited_for():
    waits = Waits()
    assert await waits.on(word(), NEVER) == "word"
    assert await waits.on(asyncio.sleep(0.001, "later"), NEVER) == "later"


async def test_a_wait_ends_at_its_limit_and_the_next_one_has_its_own():
    waits = Waits()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await waits.on(nothing(), now() + 0.01)
    assert await waits.on(asyncio.sleep(0.02, "later"), NEVER) == "later"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_limit_may_move_nearer_and_further():
    waits = Waits()
    await waits.on(asyncio.sleep(0.001), NEVER)
    with pytest.raises(TimeoutError):
        await waits.on(nothing(), now() + 0.01)
    await waits.on(asyncio.sleep(0), now() + 0.001)
    await waits.on(asyncio.sleep(0.01), now() + 10)  # the timer of the last wait goes off in here


async def test_what_comes_at_once_but_too_late_is_too_late():
    waits = Waits()
    with pytest.raises(TimeoutError):
        await waits.on(word(), now() - 1)


async def test_a_cancellation_is_not_taken_for_a_limit():
    async def work() -> None:
        waits = Waits()
        await waits.on(nothing(), NEVER)

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_together_with_the_limit_goes_on():
    async def work() -> None:
        waits = Waits()
        loop.call_at(until := now() + 0.01, task.cancel)
        await waits.on(nothing(), until)

    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_timeout_around_it_is_told_apart():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await Waits().on(nothing(), NEVER)


async def test_nobody_is_disturbed_after_the_end():
    waits = Waits()
    await waits.on(word(), now() + 0.005)
    await asyncio.sleep(0.01)


async def test_what_never_waits_lets_others_have_their_turn():
    waits = Waits()
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "turn")
    until = now() + 5
    while not turns:
        await waits.on(word(), until)


async def test_who_waited_for_something_else_need_not_wait_once_more():
    waits = Waits()
    await asyncio.sleep(3 * BREATH_SECONDS)
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "turn")
    await waits.on(word(), NEVER)
    assert not turns


class Counting(asyncio.SelectorEventLoop):
    """Counts the timers that are set up."""

    timers = 0

    def call_at(self, when: float, *args: Any, **options: Any) -> Any:  # type: ignore[override]
        self.timers += 1
        return super().call_at(when, *args, **options)


async def test_of_limits_inside_each_other_the_nearer_one_ends_its_own_wait():
    with Limit(now() + 0.02) as outer:
        for _ in range(2):
            with pytest.raises(TimeoutError), Limit(now() + 0.001) as inner:
                await nothing()
            assert inner.struck
        assert not outer.struck
    with pytest.raises(TimeoutError), Limit(now() + 0.001) as outer, Limit(now() + 10) as inner:
        await nothing()
    assert outer.struck
    assert not inner.struck


async def test_everybody_s_limit_ends_their_wait_whoever_came_first():
    ended: list[float] = []

    async def wait(seconds: float) -> None:
        with pytest.raises(TimeoutError), Limit(now() + seconds):
            await nothing()
        ended.append(seconds)

    seconds = [0.03, 0.01, 0.02, 0.0]
    await asyncio.gather(*map(wait, seconds))
    assert ended == sorted(seconds)


def test_every_event_loop_has_its_own_limits():
    async def work() -> None:
        with pytest.raises(TimeoutError), Limit(now() + 0.001):
            await nothing()

    for _ in range(2):
        asyncio.run(work())


def test_many_waits_of_many_tasks_need_one_timer():
    async def work() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Counting)
        until = loop.time() + 60

        async def words() -> None:
            waits = Waits()
            for number in range(100):
                await waits.on(asyncio.sleep(0), until + number)

        await asyncio.gather(*(words() for _ in range(10)))
        return loop.timers

    with asyncio.Runner(loop_factory=Counting) as runner:
        assert runner.run(work()) == 1
