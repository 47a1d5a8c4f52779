"""How the work of a run ends when it is told to stop, and whoever drives it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tasks.stopping import CancelledWithin, Stop, Stopping

Work = Callable[[], Awaitable[str]]
DONE = "done"


async def for_ever() -> str:
    await asyncio.Event().wait()
    return DONE


async def at_once() -> str:
    return DONE


def begun(stopping: Stopping, work: Work) -> asyncio.Task[str | None]:
    return asyncio.create_task(stopping.during(work))


async def settled(driving: asyncio.Task[str | None]) -> None:
    """The count of cancellations is where it was: whatever waits next is not cut off."""
    assert await driving is None
    assert driving.cancelling() == 0


async def test_it_works() -> None:
    assert await Stopping().during(at_once) == DONE


async def test_work_is_stopped_once_for_the_first_reason() -> None:
    stopping = Stopping()
    cancelled: list[int] = []

    async def work() -> str:
        try:
            return await for_ever()
        finally:
            stopping(Stop.LOST)
            await asyncio.sleep(0)  # a second stop would end this
            cancelled.append(1)

    driving = begun(stopping, work)
    await asyncio.sleep(0)
    stopping(Stop.CANCEL)
    stopping(Stop.SHUTDOWN)
    await settled(driving)
    assert stopping.why is Stop.CANCEL
    assert cancelled == [1]


async def test_a_stop_before_the_work_or_behind_it_cancels_nobody() -> None:
    stopping = Stopping()

    async def drive() -> str | None:
        worked = await stopping.during(at_once)
        await asyncio.sleep(0)
        return worked

    driving = asyncio.create_task(drive())
    await asyncio.sleep(0)
    stopping(Stop.CANCEL)
    assert await driving == DONE
    assert driving.cancelling() == 0


async def test_work_that_ends_all_the_same_counts() -> None:
    stopping = Stopping()

    async def work() -> str:
        try:
            await for_ever()
        except asyncio.CancelledError:
            return DONE
        return ""

    driving = begun(stopping, work)
    await asyncio.sleep(0)
    stopping(Stop.CANCEL)
    assert await driving == DONE
    assert driving.cancelling() == 0


async def test_who_learns_it_while_working_is_not_cut_off() -> None:
    stopping = Stopping()

    async def work() -> str:
        stopping(Stop.LOST)
        await asyncio.sleep(0)
        return DONE

    assert await stopping.during(work) == DONE


@pytest.mark.parametrize("first", ["the stop", "the cancellation"])
async def test_a_cancellation_from_outside_goes_on(first: str) -> None:
    stopping = Stopping()
    driving = begun(stopping, for_ever)
    await asyncio.sleep(0)
    if first == "the stop":
        stopping(Stop.CANCEL)
    driving.cancel()
    stopping(Stop.CANCEL)
    with pytest.raises(asyncio.CancelledError):
        await driving
    assert driving.cancelling() == 1


async def test_a_cancellation_from_outside_goes_on_when_the_work_itself_learned_of_a_stop() -> None:
    stopping = Stopping()

    async def work() -> str:
        stopping(Stop.LOST)
        return await for_ever()

    driving = begun(stopping, work)
    await asyncio.sleep(0)
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving


async def test_a_cancellation_from_within_is_an_error_of_the_work() -> None:
    """Nobody wants the end of the run: it would be silent until its lease runs out."""

    async def work() -> str:
        waited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waited.cancel()
        return await waited

    with pytest.raises(CancelledWithin):
        await Stopping().during(work)
