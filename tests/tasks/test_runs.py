"""Whole runs: posted, run, asked, answered, cut and taken over."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from agent.providers import ModelRequest
from agent.providers.scripted import ScriptedCall, Turn
from tasks import approvals, decisions, service, wiring
from tasks.approvals import Reply
from tasks.errors import Conflict, Invalid, NotFound
from tasks.events import Row
from tasks.models import Artifact, Task
from tasks.runner import Runner
from tasks.sessions import WorkingTime
from tasks.writer import writer
from tests.support.runs import House, ScriptedModels, make_house

pytestmark = pytest.mark.django_db(transaction=True)

DONE = Turn(text="Done.")
WRITE = Turn(
    calls=(ScriptedCall(name="write_file", arguments={"path": "out.md", "content": "# R\n"}),)
)
READ = Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "a.txt"}),))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def test_it_works(house: House) -> None:
    async with house.runner(READ, DONE):
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
    assert task.final_answer == "Done."
    assert task.session.title == "Compare the quotes"
    assert await house.types(task.pk) == [
        "task_created",
        "task_started",
        "model_call_started",
        "tool_call_requested",
        "model_call_finished",
        "tool_call_started",
        "tool_call_finished",
        "model_call_started",
        "assistant_message",
        "model_call_finished",
        "agent_completed",
        "task_completed",
    ]
    await house.check(task.pk)


async def test_creating_is_not_running(house: House) -> None:
    created = await house.ask()
    assert (created.status, created.sequence, created.position) == ("queued", 1, 1)
    assert await house.types(created.task_id) == ["task_created"]


async def test_a_write_waits_for_a_person_and_happens_after_the_answer(house: House) -> None:
    async with house.runner(WRITE, DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        approval = await house.pending(created.task_id)
        task = await Task.objects.aget(pk=created.task_id)
        assert (task.steps, task.usage["estimated"]) == (1, True)
        assert "+# R" in approval.diff
        assert not (house.folder / "out.md").exists()
        await house.reply(approval.pk, comment="Good.")
        await house.until(created.task_id, "completed")
    assert (house.folder / "out.md").read_text() == "# R\n"
    artifact = await Artifact.objects.aget(task_id=created.task_id)
    assert (artifact.path, artifact.size) == ("out.md", 4)
    assert "artifact_recorded" in await house.types(created.task_id)
    await house.check(created.task_id)


async def test_a_restart_between_ask_and_answer_changes_nothing(house: House) -> None:
    async with house.runner(WRITE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
    approval = await house.pending(created.task_id)
    await house.reply(approval.pk)
    task = await house.until(created.task_id, "waiting_approval")
    assert not (house.folder / "out.md").exists()
    async with house.runner(DONE, worker="test:2"):
        task = await house.until(created.task_id, "completed")
    assert task.run == 2
    assert (house.folder / "out.md").exists()
    await house.check(created.task_id)


async def test_the_next_write_asks_again(house: House) -> None:
    async with house.runner(WRITE, WRITE, DONE):
        created = await house.ask()
        for run in (1, 2):
            await house.until(created.task_id, waiting_in(run))
            approval = await house.pending(created.task_id)
            await house.reply(approval.pk)
        await house.until(created.task_id, "completed")
    assert (await house.types(created.task_id)).count("approval_required") == 2


async def test_a_rejection_reaches_the_model_with_its_comment(house: House) -> None:
    async with house.runner(WRITE, DONE) as runner:
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        approval = await house.pending(created.task_id)
        await house.reply(approval.pk, "reject", comment="As CSV, please.")
        await house.until(created.task_id, "completed")
        script = runner._models.script  # type: ignore[attr-defined]
        assert "As CSV, please." in str(script.requests[-1].messages[-1])
    assert not (house.folder / "out.md").exists()


async def test_a_changed_target_is_answered_with_its_successor(house: House) -> None:
    (house.folder / "out.md").write_text("old\n")
    async with house.runner(WRITE, DONE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        first = await house.pending(created.task_id)
        (house.folder / "out.md").write_text("someone else\n")
        with pytest.raises(Conflict) as refusal:
            await house.reply(first.pk)
        second = await house.pending(created.task_id)
        assert refusal.value.code == "stale"
        assert refusal.value.details == {"approval_id": str(second.pk)}
        assert "-someone else" in second.diff
        assert (house.folder / "out.md").read_text() == "someone else\n"
        await house.reply(second.pk)
        await house.until(created.task_id, "completed")
    assert (house.folder / "out.md").read_text() == "# R\n"
    await house.check(created.task_id)


async def test_a_target_that_changes_after_the_answer_is_asked_anew(house: House) -> None:
    async with house.runner(WRITE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
    first = await house.pending(created.task_id)
    await house.reply(first.pk)
    (house.folder / "out.md").write_text("too late\n")
    async with house.runner(DONE):
        task = await house.until(created.task_id, waiting_in(2))
        second = await house.pending(task.pk)
        await first.arefresh_from_db()
        assert (first.status, first.replaced_by_id) == ("stale", second.pk)
        await house.reply(second.pk)
        await house.until(task.pk, "completed")
    assert (house.folder / "out.md").read_text() == "# R\n"
    await house.check(created.task_id)


# ── cancel ────────────────────────────────────────────────────────────────────────────────────


async def test_cancel_stops_a_silent_model_and_keeps_its_words(house: House) -> None:
    async with house.runner(Turn(text="Ten words and then", hang=True)):
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 3)
        await asyncio.sleep(0.05)
        await service.cancel(created.task_id, house.alice.pk)
        task = await house.until(created.task_id, "cancelled", 2)
        await service.cancel(created.task_id, house.alice.pk)
    log = await house.log(task.pk)
    assert log[-2].type == "assistant_message"
    assert '"partial":true' in log[-2].payload
    assert '"by":"alice"' in log[-1].payload
    assert log[-1].sequence == task.last_sequence
    await house.check(task.pk)


async def test_cancel_while_waiting_voids_the_question(house: House) -> None:
    async with house.runner(WRITE):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        approval = await house.pending(created.task_id)
        await service.cancel(created.task_id, house.alice.pk)
        await house.until(created.task_id, "cancelled")
        with pytest.raises(Conflict):
            await house.reply(approval.pk)
    assert (await house.types(created.task_id))[-3:] == [
        "approval_resolved",
        "tool_call_finished",
        "task_cancelled",
    ]
    assert not (house.folder / "out.md").exists()
    await house.check(created.task_id)


async def test_cancel_of_a_queued_task_needs_no_runner(house: House) -> None:
    created = await house.ask()
    await service.cancel(created.task_id, house.alice.pk)
    task = await Task.objects.aget(pk=created.task_id)
    assert task.status == "cancelled"


# ── sessions ──────────────────────────────────────────────────────────────────────────────────


async def test_a_follow_up_sees_the_conversation(house: House) -> None:
    async with house.runner(READ, DONE, Turn(text="Again.")) as runner:
        first = await house.ask()
        await house.until(first.task_id, "completed")
        second = await house.ask("And now?", session_id=first.session_id)
        await house.until(second.task_id, "completed")
        script = runner._models.script  # type: ignore[attr-defined]
        texts = [getattr(message, "text", "") for message in script.requests[-1].messages]
    assert texts[0] == "Compare the quotes"
    assert texts[-2:] == ["Done.", "And now?"]
    task = await Task.objects.aget(pk=second.task_id)
    assert task.follow_up_of_id == first.task_id
    assert (second.sequence, second.position) == (1, 13)
    await house.check(second.task_id)


async def test_a_busy_session_rejects_or_queues(house: House) -> None:
    first = await house.ask()
    with pytest.raises(Conflict) as refusal:
        await house.ask("Second", session_id=first.session_id)
    assert refusal.value.code == "session_busy"
    second = await house.ask("Second", session_id=first.session_id, when_busy="queue")
    third = await house.ask("Third", session_id=first.session_id, when_busy="queue")
    answers = [Turn(text=f"{n}.") for n in (1, 2, 3)]
    async with house.runner(*answers):
        for created, answer in ((first, "1."), (second, "2."), (third, "3.")):
            task = await house.until(created.task_id, "completed")
            assert task.final_answer == answer


async def test_a_steering_message_reaches_the_next_step(house: House) -> None:
    slow = Turn(text="x" * 200, piece=10, delay=0.01, calls=READ.calls)
    async with house.runner(slow, Turn(text="Both.")) as runner:
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 3)
        said = await service.add_message(
            created.task_id, house.alice.pk, "Also the invoices", "steer"
        )
        assert said.task_id == created.task_id
        await house.until(created.task_id, "completed")
        script = runner._models.script  # type: ignore[attr-defined]
        assert getattr(script.requests[-1].messages[-1], "text", "") == "Also the invoices"
    await house.check(created.task_id)


async def test_a_steering_message_during_the_last_reply_gets_another_step(house: House) -> None:
    slow = Turn(text="x" * 200, piece=10, delay=0.01)
    async with house.runner(slow, Turn(text="That too.")):
        created = await house.ask()
        await house.until(created.task_id, lambda task: task.last_sequence >= 3)
        await service.add_message(created.task_id, house.alice.pk, "That too", "steer")
        task = await house.until(created.task_id, "completed")
    assert task.final_answer == "That too."
    assert (await house.types(task.pk)).count("agent_completed") == 1
    await house.check(task.pk)


async def test_interrupt_stops_what_runs_and_then_runs(house: House) -> None:
    async with house.runner(Turn(text="Long", hang=True), DONE):
        first = await house.ask()
        await house.until(first.task_id, lambda task: task.last_sequence >= 3)
        second = await house.ask("Rather this", session_id=first.session_id, when_busy="interrupt")
        await house.until(second.task_id, "completed")
        assert (await Task.objects.aget(pk=first.task_id)).status == "cancelled"


async def test_attached_files_are_named_in_the_goal_and_must_be_there(house: House) -> None:
    created = await house.ask("Sum it up", attachments=("a.txt", "b.txt"))
    task = await Task.objects.aget(pk=created.task_id)
    assert task.goal == "Sum it up\n\nAttached files:\n- a.txt\n- b.txt"
    assert '"goal":"Sum it up\\n\\nAttached files' in (await house.log(task.pk))[0].payload
    for path in ("gone.txt", "../a.txt", "."):
        with pytest.raises(Invalid) as refusal:
            await house.ask("Sum it up", attachments=(path,))
        assert refusal.value.code == "attachment"
        assert str(house.folder) not in refusal.value.message


async def test_an_idempotency_key_makes_one_task(house: House) -> None:
    same = {"idempotency_key": "k", "body_digest": "d"}
    results = await asyncio.gather(*(house.ask(**same) for _ in range(5)))
    assert len({created.task_id for created in results}) == 1
    assert sorted(created.replayed for created in results) == [False, True, True, True, True]
    with pytest.raises(Conflict) as refusal:
        await house.ask(idempotency_key="k", body_digest="other")
    assert refusal.value.code == "idempotency_conflict"


async def test_a_retry_continues_with_what_was_done(house: House) -> None:
    async with house.runner(READ, Turn(text="y", hang=True), DONE) as runner:
        first = await house.ask()
        await house.until(first.task_id, lambda task: task.last_sequence >= 8)
        await service.cancel(first.task_id, house.alice.pk)
        await house.until(first.task_id, "cancelled")
        again = await service.retry(first.task_id, house.alice.pk)
        await house.until(again.task_id, "completed")
        script = runner._models.script  # type: ignore[attr-defined]
        assert "AAA" in str(script.requests[-1].messages)
    await house.check(again.task_id)


async def test_a_fork_continues_from_the_chosen_event(house: House) -> None:
    async with house.runner(Turn(text="One."), Turn(text="Two."), Turn(text="Fork.")) as runner:
        first = await house.ask("first")
        await house.until(first.task_id, "completed")
        second = await house.ask("second", session_id=first.session_id)
        await house.until(second.task_id, "completed")
        fork = await service.fork(first.session_id, house.alice.pk, first.task_id, 7)
        created = await house.ask("elsewhere", session_id=fork)
        await house.until(created.task_id, "completed")
        script = runner._models.script  # type: ignore[attr-defined]
        texts = [getattr(message, "text", "") for message in script.requests[-1].messages]
    assert texts == ["first", "One.", "elsewhere"]


# ── shutdown and takeover ─────────────────────────────────────────────────────────────────────


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


def waiting_in(run: int) -> Callable[[Task], bool]:
    return lambda task: task.run == run and task.status == "waiting_approval"


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


# ── what must not be lost between two looks ───────────────────────────────────────────────────


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
            "Rather",
            session_id=first.session_id,
            when_busy="interrupt",
            follow_up_of=other.task_id,
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
