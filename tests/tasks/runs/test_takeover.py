"""Runs that were cut: drained, killed, taken over; and what must not be lost between two looks."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from agent.providers import ModelRequest
from agent.providers.scripted import Turn
from tasks import approvals, decisions, service, wiring
from tasks.approvals import Reply
from tasks.errors import Conflict, Invalid, NotFound
from tasks.events import Row
from tasks.models import Task
from tasks.runner import Runner
from tasks.sessions import WorkingTime
from tasks.watching import renew
from tasks.writer import writer
from tests.support.counting import written
from tests.support.rows import make_task
from tests.support.runs import House, ScriptedModels
from tests.support.turns import DONE, READ, WRITE

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_drained_run_is_continued_by_the_next_process(house: House) -> None:
    async with house.runner(READ, Turn(text="half", hang=True)):
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 8)
    async with house.runner(DONE, worker="test:2"):
        task = await house.until(created.task_id, "completed")
    types = await house.types(task.pk)
    assert types.count("task_recovered") == 1
    assert "half" not in str(await house.log(task.pk))
    await house.check(task.pk)


async def test_a_living_run_is_not_stolen(house: House) -> None:
    async with house.runner(Turn(text="mine", hang=True)) as mine:
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 3)
        async with house.runner(DONE, worker="test:2") as theirs:
            await theirs._look_around()
            assert theirs.active == 0
            theirs.wake(str(created.task_id))  # told of it by name, it tries, and lets it be
            await house.rest(theirs)
            task = await Task.objects.aget(pk=created.task_id)
            assert (task.status, task.run, task.lease_worker) == ("running", 1, mine.worker)


def _held(worker: str, run: int = 1, status: str = Task.Status.RUNNING) -> Task:
    until = timezone.now() + timedelta(seconds=1)
    return make_task(status=status, run=run, lease_worker=worker, lease_expires_at=until)


async def test_leases_of_many_runs_are_renewed_by_one_statement(house: House) -> None:
    tasks = [await sync_to_async(_held)("test:1") for _ in range(20)]
    async with written() as statements:
        kept = await writer.run(partial(renew, "test:1", {task.pk: 1 for task in tasks}))
    assert kept == {task.pk for task in tasks}
    assert len(statements) == 1
    for task in tasks:
        row = await Task.objects.aget(pk=task.pk)
        assert row.lease_expires_at is not None
        assert row.lease_expires_at > timezone.now() + timedelta(seconds=2)


async def test_no_lease_is_renewed_that_is_not_ours_any_more(house: House) -> None:
    ours = await sync_to_async(_held)("test:1")
    lost = [
        await sync_to_async(_held)("test:2"),
        await sync_to_async(_held)("test:1", run=2),
        await sync_to_async(_held)("test:1", status=Task.Status.COMPLETED),
    ]
    kept = await writer.run(partial(renew, "test:1", {task.pk: 1 for task in (ours, *lost)}))
    assert kept == {ours.pk}
    for task in lost:
        row = await Task.objects.aget(pk=task.pk)
        assert row.lease_expires_at == task.lease_expires_at


async def test_a_run_that_lost_its_task_writes_nothing_more(house: House) -> None:
    slow = Turn(text="x" * 100, piece=10, delay=0.05)
    async with house.runner(slow, worker="test:1") as loser:
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 3)
        await Task.objects.filter(pk=created.task_id).aupdate(lease_expires_at=None)
        async with house.runner(DONE, worker="test:2"):
            task = await house.until(created.task_id, "completed")
            await house.rest(loser)
    assert task.final_answer == "Done."
    assert (await house.types(task.pk)).count("assistant_message") == 1
    await house.check(task.pk)


def begun(run: int) -> Callable[[Task], bool]:
    return lambda task: task.run >= run and task.last_sequence > 2 * run


async def test_three_crashes_without_progress_fail_the_task(house: House) -> None:
    created = await house.ask()
    for number in range(4):
        worker = f"test:{number}"
        async with house.runner(Turn(text="x", hang=True), worker=worker) as runner:
            await house.until(created.task_id, begun(number + 1))
            await house.lose(runner, created.task_id)
    async with house.runner(DONE, worker="test:9"):
        task = await house.until(created.task_id, "failed")
    assert task.error is not None
    assert task.error["code"] == "recovery_failed"
    await house.check(task.pk)


async def test_any_number_of_orderly_restarts_harms_nothing(house: House) -> None:
    created = await house.ask()
    for number in range(5):
        async with house.runner(Turn(text="x", hang=True), worker=f"test:{number}"):
            await house.until(created.task_id, begun(number + 1))
    async with house.runner(DONE, worker="test:9"):
        await house.until(created.task_id, "completed")
    assert (await house.types(created.task_id)).count("task_recovered") == 5
    await house.check(created.task_id)


async def test_without_a_model_the_task_fails_and_says_where_to_set_one_up(house: House) -> None:
    created = await house.ask()
    runner = Runner("test:1")
    await runner.start()
    task = await house.until(created.task_id, "failed")
    await runner.drain(1)
    assert task.error is not None
    assert task.error["code"] == "no_model"
    assert "PILOTHOUSE_LLM_BASE_URL" in task.error["hint"]


async def test_an_expired_question_counts_as_no_and_the_run_goes_on(house: House) -> None:
    async with house.runner(WRITE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
    approval = await house.pending(created.task_id)
    later = timezone.now() + timedelta(hours=1)
    await sync_to_async(writer.run_sync)(lambda: approvals.expire_due(later))
    async with house.runner(DONE):
        await house.until(created.task_id, "completed")
    await approval.arefresh_from_db()
    assert approval.status == "expired"
    assert not (house.folder / "out.md").exists()


async def test_a_cancel_just_before_the_question_is_not_lost(house: House) -> None:
    created = await house.ask()

    def stopped_meanwhile(request: ModelRequest) -> Turn:
        asyncio.get_running_loop().create_task(service.cancel(created.task_id, house.alice.pk))
        return WRITE

    async with house.runner(stopped_meanwhile):
        task = await house.until(created.task_id, "cancelled")
    await house.check(task.pk)


async def test_the_question_command_itself_looks_for_a_cancel(house: House) -> None:
    created = await house.ask()

    async def cancel_unheard() -> None:
        """As another process would: nobody rings this one's runner."""
        now = timezone.now()
        await Task.objects.filter(pk=created.task_id).aupdate(
            cancel_requested_at=now, cancel_requested_by=house.alice
        )

    def stopped_unheard(request: ModelRequest) -> Turn:
        asyncio.run_coroutine_threadsafe(cancel_unheard(), asyncio.get_running_loop())
        return Turn(text="x" * 30, piece=1, delay=0.005, calls=WRITE.calls)

    async with house.runner(stopped_unheard):
        task = await house.until(created.task_id, "cancelled")
    assert not (house.folder / "out.md").exists()
    await house.check(task.pk)


async def test_repeating_an_interrupt_does_not_stop_what_it_made(house: House) -> None:
    async with house.runner(Turn(text="Long", hang=True), Turn(text="Slow", hang=True)):
        first = await house.ask()
        await house.until(first.task_id, lambda task: task.last_sequence >= 3)
        same = {"when_busy": "interrupt", "idempotency_key": "k", "body_digest": "d"}
        second = await house.ask("Rather", session_id=first.session_id, **same)
        again = await house.ask("Rather", session_id=first.session_id, **same)
        assert (again.task_id, again.replayed) == (second.task_id, True)
        await house.until(second.task_id, "running")
        assert (await Task.objects.aget(pk=second.task_id)).cancel_requested_at is None


async def test_a_refused_interrupt_stops_nothing(house: House) -> None:
    first = await house.ask()
    other = await house.ask("Elsewhere")
    with pytest.raises(NotFound):
        await house.ask(
            "Rather", session_id=first.session_id, when_busy="interrupt", follow_up_of=other.task_id
        )
    assert (await Task.objects.aget(pk=first.task_id)).status == "queued"


async def test_repeating_a_steering_message_says_it_once(house: House) -> None:
    first = await house.ask()
    same = {"when_busy": "steer", "idempotency_key": "k", "body_digest": "d"}
    said = await house.ask("Also", session_id=first.session_id, **same)
    again = await house.ask("Also", session_id=first.session_id, **same)
    assert (again.sequence, again.replayed) == (said.sequence, True)
    assert (await house.types(first.task_id)).count("user_message") == 1
    with pytest.raises(Conflict):
        await house.ask("Something else", session_id=first.session_id, **same)


async def test_steering_refuses_what_only_a_new_task_can_have(house: House) -> None:
    first = await house.ask()
    with pytest.raises(Invalid) as refusal:
        await house.ask("Also", session_id=first.session_id, when_busy="steer", mode="read_only")
    assert refusal.value.code == "not_for_steering"


async def test_repeating_an_answer_takes_no_lease_from_who_works_on_it(house: House) -> None:
    async with house.runner(WRITE, Turn(text="on it", hang=True)):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        approval = await house.pending(created.task_id)
        await house.reply(approval.pk)
        await house.until(created.task_id, "running")
        reply = Reply(decision="approve")
        await decisions.resolve(approval.pk, house.alice.pk, reply, worker="cli:2")
        task = await Task.objects.aget(pk=created.task_id)
        assert (task.status, task.lease_worker) == ("running", "test:1")


async def test_repeating_an_answer_that_nobody_has_acted_on_acts_on_it(house: House) -> None:
    async with house.runner(WRITE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
    approval = await house.pending(created.task_id)
    await house.reply(approval.pk)
    reply = Reply(decision="approve")
    await decisions.resolve(approval.pk, house.alice.pk, reply, worker="cli:2")
    task = await Task.objects.aget(pk=created.task_id)
    assert (task.status, task.lease_worker) == ("waiting_approval", "cli:2")


async def test_a_task_that_cannot_be_begun_fails_and_is_not_tried_for_ever(house: House) -> None:
    class Broken(wiring.Models):
        def choose(self, task: Task) -> wiring.Choice:
            raise ValueError("Unknown scheme for proxy URL")

    created = await house.ask()
    runner = Runner("test:1", Broken())
    await runner.start()
    task = await house.until(created.task_id, "failed")
    await runner.drain(1)
    assert task.error is not None
    assert task.error["code"] == "internal_error"
    assert "proxy" not in str(task.error)


def test_a_clock_that_was_set_is_no_work() -> None:
    began = timezone.now()

    def row(seconds: float, type_: str, payload: str = "{}") -> Row:
        at = began + timedelta(seconds=seconds)
        return Row(
            task_id="t", session_id="s", sequence=1, position=1, type=type_, payload=payload,
            created_at=at, hash="",
        )  # fmt: skip

    meter = WorkingTime()
    rows = [
        row(0, "task_started"),
        row(7200, "model_call_finished", '{"duration_ms":4000}'),
        row(7205, "approval_required"),
        row(9999, "approval_resolved"),
        row(10000, "task_started"),
        row(10010, "task_completed"),
    ]
    assert len(list(meter.watch(rows))) == len(rows)
    assert 4 + 5 + 10 <= meter.seconds < 300


async def test_a_watcher_that_stumbles_goes_on(house: House) -> None:
    """Nobody rings here: only the watcher can find the task."""
    created = await house.ask()

    class Stumbling(Runner):
        stumbled = 0

        async def _look_around(self) -> None:
            if self.stumbled < 2:
                self.stumbled += 1
                raise ZeroDivisionError
            await super()._look_around()

    runner = Stumbling("test:1", ScriptedModels([DONE]))
    await runner.start()
    await house.until(created.task_id, "completed")
    await runner.drain(1)
    assert runner.stumbled == 2


async def test_a_server_removes_what_a_crash_left_half_written(house: House) -> None:
    left, young = (house.folder / f".pilothouse-{letter * 16}.tmp" for letter in "ab")
    left.write_text("half")
    young.write_text("half")
    os.utime(left, (100, 100))
    async with house.runner():
        await asyncio.to_thread(_gone, left)
    assert young.exists()


def _gone(file: Path) -> None:
    for _ in range(1000):
        if not file.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{file} is still there")
