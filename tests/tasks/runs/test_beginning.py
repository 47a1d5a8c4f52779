"""A new task where there is a place: its run begins in the command that stores it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from agent.events import LiveEvent
from agent.providers.scripted import Turn, TurnFor
from tasks import service, sessions, starting, wiring
from tasks.conf import conf
from tasks.consumers import RunWorker
from tasks.errors import Conflict, TooMany
from tasks.models import Session, Task, TaskEvent
from tasks.runner import Runner
from tasks.runs import Ending, Run
from tasks.writer import writer
from tests.support.counting import written
from tests.support.runs import House, ScriptedModels
from tests.support.turns import DONE, READ

pytestmark = pytest.mark.django_db(transaction=True)
HANGS = Turn(text="half", hang=True)


@pytest.fixture(autouse=True)
def nobody_looks_unasked(settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), watch_seconds=3600, max_active_runs=3)


@asynccontextmanager
async def server(
    house: House, *turns: Turn | TurnFor, models: wiring.Models | None = None
) -> AsyncIterator[Runner]:
    """With a runner of its own and somebody who hears the bell, as an embedded server has them."""
    async with house.runner(*turns, models=models) as runner:
        listener = RunWorker(runner)
        listener.ensure_started()
        await place(runner)
        service.here.runner = runner
        try:
            yield runner
        finally:
            service.here.runner = None
            await listener.stop()


async def place(runner: Runner) -> None:
    """Its look has found that nobody waits."""
    async with asyncio.timeout(10):
        while True:
            if runner.has_place():
                return
            await asyncio.sleep(0.001)


async def test_a_new_task_runs_without_anybody_ringing_for_it(house: House) -> None:
    async with server(house, READ, DONE) as runner:
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
        await house.rest(runner)
        assert runner.has_place()
    assert (created.status, created.sequence, created.position) == ("queued", 1, 1)
    first = (await house.log(task.pk))[:3]
    assert [row.type for row in first] == ["task_created", "task_started", "model_call_started"]
    assert len({row.created_at for row in first}) == 1  # as all of one append
    assert (task.run, task.steps, task.lease_worker) == (1, 2, "")
    assert task.started_at is not None
    session = await Session.objects.aget(pk=created.session_id)
    assert session.last_position == task.last_sequence
    await house.check(task.pk)


async def test_what_it_begins_with_is_what_its_log_says(house: House) -> None:
    async with server(house, HANGS) as runner:
        created = await house.ask("Compare\u2028the quotes")
        task = await house.until(created.task_id, lambda task: task.last_sequence == 3)
        begun = runner._runs[task.pk].begun
        read = await sync_to_async(sessions.transcript_of)(task)
        assert begun.transcript is not None
        assert begun.transcript.messages() == read.messages()
        assert (begun.task.run, begun.task.status) == (task.run, task.status)
        assert begun.task.lease_expires_at == task.lease_expires_at
        assert begun.stored.last_position == 3


async def test_a_task_with_one_answer_takes_fewer_statements(house: House) -> None:
    """Of the writer, about our tables; fifteen where the run begins for itself."""
    async with server(house, DONE, DONE) as runner:
        await house.until((await house.ask()).task_id, "completed")
        await house.rest(runner)
        async with written() as statements:
            created = await house.ask()
            await house.until(created.task_id, "completed")
            await house.rest(runner)
    assert len(statements) <= 9, "\n".join(statements)


async def test_no_call_of_a_model_is_in_the_log_where_a_limit_may_come_before_it(
    house: House, settings: Settings
) -> None:
    settings.PILOTHOUSE = replace(conf(), watch_seconds=3600, max_user_steps=1)
    async with server(house, DONE) as runner:
        await house.until((await house.ask()).task_id, "completed")
        await house.rest(runner)
        created = await house.ask()
        await house.until(created.task_id, "budget_exceeded")
    assert await house.types(created.task_id) == [
        *("task_created", "task_started", "budget_exceeded")
    ]


async def test_more_than_fits_is_done_once_and_never_more_at_a_time(house: House) -> None:
    async with server(house, *[DONE] * 12) as runner:
        asked = await asyncio.gather(*(house.ask(f"Goal {number}") for number in range(12)))
        assert not runner.has_place()
        busiest = 0
        for created in asked:
            task = await house.until(created.task_id, "completed")
            busiest = max(busiest, runner.active)
            assert task.run == 1
    assert busiest <= 3


async def test_nobody_overtakes_who_waits_for_a_place(house: House) -> None:
    async with server(house, *[HANGS] * 6):
        asked = [await house.ask(f"Goal {number}") for number in range(6)]
        for created, following in zip(asked, asked[3:], strict=False):
            await house.until(created.task_id, "running")
            await service.cancel(created.task_id, house.alice.pk)
            await house.until(following.task_id, "running")
    begun = TaskEvent.objects.filter(type="task_started").order_by("pk")
    order = [row.task_id async for row in begun]
    assert order == [created.task_id for created in asked]


async def test_a_place_that_was_given_back_is_theirs_who_wait_for_one(house: House) -> None:
    async with server(house, *[HANGS] * 4) as runner:
        asked = [await house.ask(f"Goal {number}") for number in range(4)]
        await house.until(asked[0].task_id, "running")
        ending = runner._tasks[asked[0].task_id]
        cancelling = asyncio.create_task(service.cancel(asked[0].task_id, house.alice.pk))
        await asyncio.wait({ending})
        assert runner.active < 3
        assert not runner.has_place()
        await cancelling
        await house.until(asked[3].task_id, "running")


async def test_there_is_a_place_on_the_runners_own_loop_alone(house: House) -> None:
    async with server(house) as runner:

        async def has_place() -> bool:
            return runner.has_place()

        assert await has_place()
        assert not await asyncio.to_thread(asyncio.run, has_place())


async def test_a_server_that_stops_has_no_place(house: House) -> None:
    async with server(house) as runner:
        await runner.drain(0)
        assert not runner.has_place()


async def test_whoever_rings_as_a_place_is_free_does_not_take_it_from_who_waits(
    house: House,
) -> None:
    async with server(house, *[HANGS] * 4) as runner:
        asked = [await house.ask(f"Goal {number}") for number in range(5)]
        for created in asked[:3]:
            await house.until(created.task_id, "running")
        first, *_, waiting, newcomer = (created.task_id for created in asked)
        # Behind the end of the first run, before anybody has looked for who is next.
        runner._tasks[first].add_done_callback(lambda _: runner.wake(str(newcomer)))
        await service.cancel(first, house.alice.pk)
        await house.until(waiting, "running")
        assert (await Task.objects.aget(pk=newcomer)).status == Task.Status.QUEUED


async def test_a_follow_up_waits_for_its_turn_as_ever(house: House) -> None:
    async with server(house, HANGS, DONE):
        first = await house.ask()
        await house.until(first.task_id, "running")
        with pytest.raises(Conflict):
            await house.ask(session_id=first.session_id)
        second = await house.ask(session_id=first.session_id, when_busy="queue")
        assert (await Task.objects.aget(pk=second.task_id)).status == Task.Status.QUEUED
        await service.cancel(first.task_id, house.alice.pk)
        await house.until(second.task_id, "completed")
    await house.check(second.task_id)


async def test_what_is_refused_leaves_nothing_and_gives_its_place_back(
    house: House, settings: Settings
) -> None:
    settings.PILOTHOUSE = replace(conf(), max_queued_per_user=0)
    async with server(house, DONE) as runner:
        with pytest.raises(TooMany):
            await house.ask()
        await house.rest(runner)
        assert runner.active == 0
    assert not await Session.objects.aexists()
    assert not await Task.objects.aexists()


async def test_one_key_asked_twice_at_once_is_one_task(house: House) -> None:
    async with server(house, DONE) as runner:
        twice = [house.ask(idempotency_key="k", body_digest="d") for _ in range(2)]
        one, other = await asyncio.gather(*twice)
        assert one.task_id == other.task_id
        await house.until(one.task_id, "completed")
        await house.rest(runner)
    assert await Task.objects.acount() == 1


async def test_who_stops_waiting_for_the_answer_stops_no_task(house: House) -> None:
    async with server(house, DONE):
        held = asyncio.create_task(writer.run(partial(time.sleep, 0.05)))
        asking = asyncio.create_task(house.ask())
        await asyncio.sleep(0.01)
        asking.cancel()
        await held
        await asyncio.wait({asking})
        await writer.run(int)  # behind the command that stores it
        task = await Task.objects.aget()
        await house.until(task.pk, "completed")


async def test_a_server_that_stops_hands_over_what_it_began_a_moment_ago(house: House) -> None:
    async with server(house, HANGS) as runner:
        held = asyncio.create_task(writer.run(partial(time.sleep, 0.05)))
        asking = asyncio.create_task(house.ask())
        await asyncio.sleep(0.01)
        await runner.drain(1)
        await held
        created = await asking
        assert not runner.has_place()
    async with house.runner(DONE, worker="test:2"):
        await house.until(created.task_id, "completed")
    await house.check(created.task_id)


async def test_without_a_model_it_fails_and_says_so(house: House, settings: Settings) -> None:
    settings.PILOTHOUSE = replace(
        conf(), llm_provider="", llm_base_url="", demo_model=False, llm_model=""
    )
    async with server(house, models=wiring.Models()):
        created = await house.ask()
        task = await house.until(created.task_id, "failed")
    assert task.error is not None
    assert task.error["code"] == "no_model"


class Broken(ScriptedModels):
    def choose(self, task: Task) -> wiring.Choice:
        raise RuntimeError("an error of ours")


async def test_an_error_of_ours_fails_the_run_and_not_the_request(house: House) -> None:
    async with server(house, models=Broken([])):
        created = await house.ask()
        task = await house.until(created.task_id, "failed")
    assert task.error is not None
    assert task.error["code"] == "internal_error"


async def test_what_is_stored_with_the_beginning_is_shown_and_not_told_twice(house: House) -> None:
    created = await house.ask()
    begun = await starting.begin(created.task_id, "test:1", ScriptedModels([DONE]))
    assert begun is not None
    shown: list[tuple[int, LiveEvent | None]] = []

    def observe(newest: int, event: LiveEvent | None) -> None:
        shown.append((newest, event))

    assert await Run(begun=begun, kit=begun.kit, observe=observe).drive() is Ending.ENDED
    assert shown[0] == (begun.stored.last_sequence, None)
    assert (await house.types(created.task_id)).count("model_call_started") == 1


async def test_what_the_engine_tells_instead_is_stored_behind_it(house: House) -> None:
    created = await house.ask()
    begun = await starting.begin(created.task_id, "test:1", ScriptedModels([DONE]))
    assert begun is not None
    assert begun.asked is not None
    other = msgspec.structs.replace(begun.asked, model="another")
    run = Run(begun=replace(begun, asked=other), kit=begun.kit)
    assert await run.drive() is Ending.ENDED
    assert (await house.types(created.task_id)).count("model_call_started") == 2
    await house.check(created.task_id)
