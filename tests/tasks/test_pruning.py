"""Old and deleted things can go, and the log still proves that nothing else did."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from agent.messages import UserMessage
from agent.providers.scripted import ScriptedCall, Turn
from tasks import pruning, schedules, sessions
from tasks.models import (
    AguiRun,
    AguiThread,
    Approval,
    PolicyRule,
    Schedule,
    ScheduleTick,
    Session,
    Task,
    TaskEvent,
    Tombstone,
)
from tasks.writer import writer
from tests.support.people import bearer
from tests.support.rows import make_session, make_task, make_user, make_workspace
from tests.support.runs import House, make_house
from tests.tasks.test_verify_log import append

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]
DAY = timedelta(days=1)


def ended(session: Session | None = None, *, rests: int = 0, count: int = 4) -> Task:
    """A task with events, done, in a session that rests for so many days."""
    task = make_task(session, goal="The goal", final_answer="The answer")
    append(task, count)
    Task.objects.filter(pk=task.pk).update(status=Task.Status.COMPLETED)
    rest(task.session, rests)
    task.refresh_from_db()
    return task


def rest(session: Session, days: int) -> None:
    Session.objects.filter(pk=session.pk).update(updated_at=timezone.now() - days * DAY)


def command(name: str, *arguments: str) -> str:
    out = StringIO()
    call_command(name, *arguments, stdout=out)
    return out.getvalue()


def left(task: Task) -> int:
    return TaskEvent.objects.filter(task=task).count()


def test_the_events_of_what_rests_go_and_the_rest_stays() -> None:
    old, young = ended(rests=100), ended(rests=10)
    waiting = make_task(ended(rests=100).session)
    rest(waiting.session, 100)
    assert command("prune_events", "--older-than", "30") == "4 events of 1 tasks were pruned.\n"
    assert (left(old), left(young)) == (0, 4)
    old.refresh_from_db()
    assert (old.goal, old.final_answer, old.last_sequence) == ("The goal", "The answer", 4)
    assert command("prune_events", "--older-than", "30") == "0 events of 0 tasks were pruned.\n"


def test_the_log_is_still_whole_and_says_what_went() -> None:
    old, young = ended(rests=100), ended()
    Session.objects.filter(pk=young.session_id).update(title="kept")
    before = command("verify_log", str(old.pk))
    command("prune_events", "--older-than", "30")
    assert command("verify_log", str(old.pk)) == before  # its chain ends where it ended
    whole = command("verify_log")
    assert "2 tasks, 8 events, 0 broken" in whole
    assert "of these 4 events of 1 tasks pruned" in whole


def test_a_session_goes_on_after_its_first_turn_was_pruned() -> None:
    old = ended(rests=100)
    command("prune_events", "--older-than", "30")
    append(make_task(old.session), 3)
    assert "0 broken" in command("verify_log")


def test_a_tombstone_that_nobody_made_by_pruning_is_seen() -> None:
    task = ended()
    Tombstone.objects.create(task=task, sequence=task.last_sequence, hash=task.last_hash)
    TaskEvent.objects.filter(task=task).delete()
    with pytest.raises(CommandError):
        command("verify_log")


@pytest.mark.parametrize("change", [{"sequence": 3}, {"hash": "0" * 64}])
def test_a_changed_tombstone_is_seen(change: dict[str, Any]) -> None:
    ended(rests=100)
    command("prune_events", "--older-than", "30")
    Tombstone.objects.update(**change)
    with pytest.raises(CommandError):
        command("verify_log")


def test_events_that_are_cut_off_elsewhere_are_still_seen() -> None:
    ended(rests=100)
    cut = ended()
    command("prune_events", "--older-than", "30")
    TaskEvent.objects.filter(task=cut, sequence=4).delete()
    with pytest.raises(CommandError):
        command("verify_log")


def test_a_session_with_something_open_or_a_young_fork_is_left_alone() -> None:
    busy, forked = ended(rests=100), ended(rests=100)
    make_task(busy.session)
    rest(busy.session, 100)
    make_session(forked.session.workspace, forked_from=forked, forked_at_sequence=2)
    command("prune_events", "--older-than", "30")
    assert (left(busy), left(forked)) == (4, 4)


@pytest.mark.parametrize("how", [("--older-than", "30"), ("--erase",)])
def test_a_fork_of_a_fork_keeps_the_history_of_both(how: tuple[str, ...]) -> None:
    first = ended(rests=100)
    workspace = first.session.workspace
    middle = ended(make_session(workspace, forked_from=first, forked_at_sequence=2), rests=100)
    last = make_session(workspace, forked_from=middle, forked_at_sequence=2)
    if how == ("--erase",):
        Session.objects.exclude(pk=last.pk).update(hidden=True)
    command("prune_events", *how)
    assert (left(first), left(middle)) == (4, 4)

    Session.objects.update(hidden=True)
    rest(last, 100)
    command("prune_events", *how)
    assert (left(first), left(middle)) == (0, 0)


def test_somebody_who_comes_back_meanwhile_keeps_the_history() -> None:
    task = ended(rests=100)
    going = pruning.old(timezone.now() - 30 * DAY)
    assert going.count() == 1
    rest(task.session, 0)
    prune = partial(pruning._prune, task.pk, timezone.now() - 30 * DAY, "-")
    assert writer.run_sync(prune) == 0
    assert left(task) == 4


def test_erasing_leaves_no_word_of_a_deleted_session_and_nothing_of_others() -> None:
    gone, kept = ended(), ended()
    Session.objects.filter(pk=gone.session_id).update(hidden=True, title="The secret plan")
    approval = Approval.objects.create(
        task=gone,
        kind="call",
        step=1,
        tool_call_id="c",
        tool="write_file",
        capability="file:write",
        risk="low",
        status="approved",
        arguments={"content": "secret"},
        diff="+secret",
        standing="write_file on secret.txt",
        votes=[{"by": "eve", "comment": "secret", "edited_arguments": {"content": "secret"}}],
        comment="secret",
    )
    rules = [
        PolicyRule.objects.create(
            scope="workspace",
            workspace=gone.session.workspace,
            decision="allow",
            path="secret.txt",
            host="secret.example",
            digest="secret",
            note="write_file on secret.txt",
            made_by=gone.created_by,
            made_from=made_from,
        )
        for made_from in (approval, None)
    ]
    for task in (gone, kept):
        thread = AguiThread.objects.create(
            owner=task.owner, name=f"secret {task.pk}", session=task.session
        )
        thread.runs.create(name="secret", task=task)
    assert command("prune_events", "--erase", "--dry-run") == "1 tasks would be erased.\n"
    assert command("prune_events", "--erase") == "4 events of 1 tasks were erased.\n"
    gone.refresh_from_db()
    approval.refresh_from_db()
    session = Session.objects.get(pk=gone.session_id)
    assert (gone.goal, gone.final_answer, session.title) == ("", "", "")
    assert not [name for name, value in vars(approval).items() if "secret" in str(value)]
    for rule in rules:
        rule.refresh_from_db()
    of_card, of_administrator = rules
    assert not [name for name, value in vars(of_card).items() if "secret" in str(value)]
    assert (of_card.enabled, of_administrator.enabled) == (False, True)
    assert of_administrator.path == "secret.txt"
    assert list(AguiRun.objects.values_list("task", flat=True)) == [kept.pk]
    assert AguiThread.objects.count() == 1
    assert (left(gone), left(kept)) == (0, 4)
    assert "0 broken" in command("verify_log")
    assert command("prune_events", "--erase") == "0 events of 0 tasks were erased.\n"


def test_a_deleted_session_without_a_task_keeps_no_title() -> None:
    workspace = make_workspace(make_user())
    gone, kept = (make_session(workspace, title="The secret plan") for _ in range(2))
    Session.objects.filter(pk=gone.pk).update(hidden=True)
    command("prune_events", "--erase")
    gone.refresh_from_db()
    kept.refresh_from_db()
    assert (gone.title, kept.title) == ("", "The secret plan")


@pytest.mark.only_postgresql  # SQLite locks no rows
def test_whoever_comes_back_at_that_moment_keeps_the_history() -> None:
    task = ended(rests=100)
    held, release = threading.Event(), threading.Event()

    def come_back() -> None:
        with transaction.atomic():
            rest(task.session, 0)
            held.set()
            release.wait(10)
        connection.close()

    back = threading.Thread(target=come_back)
    back.start()
    assert held.wait(10)
    prune = partial(pruning._prune, task.pk, timezone.now() - 30 * DAY, "-")
    with ThreadPoolExecutor(1) as pool:
        pruned = pool.submit(writer.run_sync, prune)
        wait_until_blocked_or(pruned)
        release.set()
        assert pruned.result(10) == 0
    back.join()
    assert left(task) == 4


def wait_until_blocked_or(done: Future[int]) -> None:
    """Until the database says that somebody waits for a lock, or it is over."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    while not done.done():
        with connection.cursor() as cursor:
            cursor.execute(waits, [connection.settings_dict["NAME"]])
            if cursor.fetchone()[0]:
                return


def test_it_wants_to_be_told_what() -> None:
    for wrong in ([], ["--older-than", "0"]):
        with pytest.raises(CommandError) as refused:
            command("prune_events", *wrong)
        assert refused.value.returncode == 2


def test_a_pruned_task_can_still_be_read_and_followed() -> None:
    task = ended(rests=100)
    command("prune_events", "--older-than", "30")
    client = Client(headers=bearer(task.created_by))
    assert client.get(f"/api/tasks/{task.pk}").json()["final_answer"] == "The answer"
    assert client.get(f"/api/tasks/{task.pk}/events").json() == {"items": [], "next": None}


async def test_the_next_turn_knows_what_was_asked_and_answered(tmp_path: Path) -> None:
    house: House = await sync_to_async(make_house)(tmp_path / "desk")
    read = Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "a.txt"}),))
    async with house.runner(read, Turn(text="It says AAA.")) as runner:
        first = await house.ask("What does it say?")
        runner.wake(str(first.task_id))
        await house.until(first.task_id, "completed")
    await sync_to_async(rest)(await Session.objects.aget(pk=first.session_id), 100)
    await sync_to_async(command)("prune_events", "--older-than", "30")
    async with house.runner(Turn(text="Three letters.")) as runner:
        second = await house.ask("How long is that?", session_id=first.session_id)
        runner.wake(str(second.task_id))
        task = await house.until(second.task_id, "completed")
    transcript = await sync_to_async(sessions.transcript_of)(task)
    said = [message for message in transcript.messages() if isinstance(message, UserMessage)]
    assert "What does it say?" in said[0].text
    assert "AAA" in str(transcript.messages())
    await house.check(second.task_id)


def test_old_ticks_of_a_schedule_go_with_the_next_one() -> None:
    owner = make_user()
    workspace = make_workspace(owner)
    schedule = Schedule.objects.create(
        owner=owner, workspace=workspace, name="n", goal="g", cron="* * * * *"
    )
    now = timezone.now()
    Schedule.objects.filter(pk=schedule.pk).update(next_due_at=now)
    for days in (1, 89, 91, 400):
        ScheduleTick.objects.create(schedule=schedule, due_at=now - days * DAY, outcome="skipped")
    schedules.run_due(now)
    kept = ScheduleTick.objects.filter(schedule=schedule).values_list("due_at", flat=True)
    assert sorted((now - due).days for due in kept) == [0, 1, 89]
