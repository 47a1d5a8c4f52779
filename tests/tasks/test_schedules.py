"""Schedules: cron lines, and that each due time makes at most one task."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.utils import timezone

from tasks import audit, schedules
from tasks.errors import Invalid
from tasks.models import AuditEntry, Member, Schedule, ScheduleTick, Session, Task
from tasks.writer import writer
from tests.support.rows import make_user, make_workspace

CASES = json.loads((Path(__file__).parent / "data" / "cron.json").read_text())
NOON = datetime(2026, 5, 4, 12, 0, 30, tzinfo=UTC)


@pytest.fixture
def _writer_ends():
    yield
    writer.stop()


rows = pytest.mark.usefixtures("_writer_ends", "transactional_db")


def iso(moments: list[datetime]) -> list[str]:
    return [f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in moments]


def make_schedule(**fields: Any) -> Schedule:
    owner = fields.pop("owner", None) or make_user()
    now = fields.pop("now", NOON)
    schedule = Schedule(
        owner=owner,
        workspace=fields.pop("workspace", None) or make_workspace(owner),
        **{"name": "morning", "goal": "Compare the quotes", "cron": "*/10 * * * *", **fields},
    )
    schedules.plan(schedule, now)
    schedule.save()
    return schedule


def finish(task_id: Any) -> None:
    Task.objects.filter(pk=task_id).update(status=Task.Status.COMPLETED)


# ── cron lines ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", CASES["valid"], ids=lambda case: f"{case['expr']} {case['after']}")
def test_valid_lines_fire_when_they_should(case):
    wanted = case.get("fires_utc_any_of") or [case["fires_utc"]]
    cron = schedules.parse(case["expr"], case["tz"])
    due = cron.after(datetime.fromisoformat(case["after"]))
    assert iso([next(due) for _ in wanted[0]]) in wanted


@pytest.mark.parametrize("case", CASES["valid"], ids=lambda case: f"{case['expr']} {case['after']}")
def test_asking_one_by_one_finds_the_same_times(case):
    """The scheduler asks again from each due time; no hour that comes twice fires twice."""
    cron = schedules.parse(case["expr"], case["tz"])
    start = datetime.fromisoformat(case["after"])
    at_once = cron.after(start)
    moment = start
    for _ in range(8):
        moment = cron.next(moment)
        assert moment == next(at_once)


@pytest.mark.parametrize("line", CASES["invalid"], ids=lambda line: repr(line[:20]))
def test_invalid_lines_are_refused_in_words(line):
    with pytest.raises(Invalid) as refused:
        schedules.parse(line, "UTC")
    assert refused.value.code == "cron"
    assert refused.value.message.endswith(".")
    assert len(refused.value.message) < 300


@pytest.mark.parametrize("line", [*CASES["never"], "0 0 31 4,6,9,11 *"])
def test_dates_that_never_come_are_refused(line):
    with pytest.raises(Invalid, match="never comes"):
        schedules.parse(line, "UTC")


@pytest.mark.parametrize("zone", CASES["bad_tz"])
def test_bad_time_zones_are_refused(zone):
    with pytest.raises(Invalid) as refused:
        schedules.parse("0 7 * * *", zone)
    assert refused.value.code == "time_zone"


def test_the_wrong_field_is_named():
    with pytest.raises(Invalid, match="day of week '8' is not valid"):
        schedules.parse("0 7 * * 8", "UTC")


def test_two_local_times_in_the_spring_gap_are_one_due_time():
    cron = schedules.parse("0,30 2,3 * * *", "Europe/Berlin")
    due = cron.after(datetime(2026, 3, 28, 12, tzinfo=UTC))
    found = [next(due) for _ in range(4)]
    assert len(set(found)) == 4


# ── due times ─────────────────────────────────────────────────────────────────────────────────


@rows
def test_a_due_time_makes_one_task():
    schedule = make_schedule()
    assert schedules.run_due(NOON) == []
    (tick,) = schedules.run_due(NOON + timedelta(minutes=10))
    assert tick.outcome == ScheduleTick.Outcome.CREATED
    task = Task.objects.get()
    assert (task.pk, task.trigger, task.created_by) == (tick.task_id, "cron", schedule.owner)
    assert schedules.run_due(NOON + timedelta(minutes=10)) == []
    assert Task.objects.count() == 1


@rows
def test_it_keeps_its_own_session():
    schedule = make_schedule()
    for minutes in (10, 20):
        (tick,) = schedules.run_due(NOON + timedelta(minutes=minutes))
        finish(tick.task_id)
    schedule.refresh_from_db()
    assert {task.session_id for task in Task.objects.all()} == {schedule.session_id}
    first, second = Task.objects.order_by("first_position")
    assert second.follow_up_of == first


@rows
def test_a_deleted_session_is_followed_by_a_new_one():
    schedule = make_schedule()
    schedules.run_due(NOON + timedelta(minutes=10))
    finish(Task.objects.get().pk)
    Session.objects.update(hidden=True)
    (tick,) = schedules.run_due(NOON + timedelta(minutes=20))
    assert tick.outcome == ScheduleTick.Outcome.CREATED
    schedule.refresh_from_db()
    assert schedule.session is not None
    assert not schedule.session.hidden


@rows
def test_after_three_hours_without_a_scheduler_one_task_is_made():
    schedule = make_schedule()
    (tick,) = schedules.run_due(NOON + timedelta(hours=3))
    assert tick.due_at == NOON.replace(minute=10, second=0)
    finish(tick.task_id)
    assert schedules.run_due(NOON + timedelta(hours=3)) == []
    schedule.refresh_from_db()
    assert schedule.next_due_at == NOON.replace(hour=15, minute=10, second=0)


@rows
def test_a_tick_is_skipped_and_recorded_while_the_last_task_is_open():
    make_schedule(cron="* * * * *")
    schedules.run_due(NOON + timedelta(minutes=1))
    for minutes in (2, 3):
        (tick,) = schedules.run_due(NOON + timedelta(minutes=minutes))
        assert tick.outcome == ScheduleTick.Outcome.SKIPPED
        assert "not finished (queued)" in tick.reason
    finish(Task.objects.get().pk)
    (tick,) = schedules.run_due(NOON + timedelta(minutes=4))
    assert tick.outcome == ScheduleTick.Outcome.CREATED
    assert ScheduleTick.objects.count() == 4


@rows
def test_a_clock_that_is_set_back_repeats_nothing():
    make_schedule()
    (tick,) = schedules.run_due(NOON + timedelta(hours=1))
    finish(tick.task_id)
    for minutes in (0, 10, 20, 59):
        assert schedules.run_due(NOON + timedelta(minutes=minutes)) == []
    assert Task.objects.count() == 1


@rows
def test_two_schedulers_at_once_make_one_task():
    make_schedule()
    due, start = NOON + timedelta(minutes=10), threading.Barrier(4)

    def look() -> None:
        start.wait()
        schedules.run_due(due)
        connections.close_all()  # this thread's own

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Task.objects.count() == 1
    assert ScheduleTick.objects.get().outcome == ScheduleTick.Outcome.CREATED


@rows
def test_a_claim_that_was_left_behind_is_carried_out_once():
    """The scheduler died between the claim and the task, or between the task and its tick."""
    schedule = make_schedule()
    ScheduleTick.objects.create(schedule=schedule, due_at=NOON)
    (tick,) = schedules.run_due(NOON)
    assert tick.outcome == ScheduleTick.Outcome.CREATED
    ScheduleTick.objects.update(outcome=ScheduleTick.Outcome.CLAIMED, task=None)
    Schedule.objects.update(goal="Edited meanwhile")
    (again,) = schedules.run_due(NOON)
    assert again.task_id == tick.task_id
    assert Task.objects.count() == 1


@rows
def test_switched_off_edited_and_deleted_schedules_make_nothing_old():
    off, edited, deleted = make_schedule(), make_schedule(name="b"), make_schedule(name="c")
    off.enabled = False
    schedules.plan(off)
    off.save()
    edited.cron = "0 7 * * *"
    schedules.plan(edited, NOON)
    edited.save()
    deleted.delete()
    assert schedules.run_due(NOON + timedelta(minutes=10)) == []


@rows
def test_an_inactive_owner_pauses_it_with_a_reason():
    schedule = make_schedule()
    schedule.owner.is_active = False
    schedule.owner.save()
    assert schedules.run_due(NOON + timedelta(minutes=10)) == []
    schedule.refresh_from_db()
    assert not schedule.enabled
    assert "is not active" in schedule.paused_reason
    assert AuditEntry.objects.get().action == "schedule.paused"
    schedule.owner.is_active = True
    schedule.owner.save()
    schedule.enabled = True
    schedules.plan(schedule, NOON)
    assert schedule.paused_reason == ""


@rows
def test_an_owner_who_lost_the_workspace_pauses_it():
    bob = make_user("bob")
    workspace = make_workspace()
    member = Member.objects.create(workspace=workspace, user=bob, role=Member.Role.MEMBER)
    schedule = make_schedule(owner=bob, workspace=workspace)
    member.delete()
    schedules.run_due(NOON + timedelta(minutes=10))
    schedule.refresh_from_db()
    assert "may not work in its workspace" in schedule.paused_reason
    assert not Task.objects.exists()


@rows
def test_a_mode_that_became_looser_than_the_server_is_tightened(settings):
    schedule = make_schedule(mode="ask")
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, unattended_mode="read_only")
    schedules.run_due(NOON + timedelta(minutes=10))
    assert Task.objects.get().mode == "read_only"
    assert schedule.mode == "ask"


@rows
def test_a_full_queue_skips(settings):
    make_schedule()
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, max_queued_per_user=0)
    (tick,) = schedules.run_due(NOON + timedelta(minutes=10))
    assert tick.outcome == ScheduleTick.Outcome.SKIPPED
    assert "wait already" in tick.reason


@rows
def test_run_now_makes_a_task_and_is_audited():
    schedule = make_schedule()
    tick = schedules.run_now(schedule.pk, "alice")
    assert tick.manual
    assert tick.task is not None
    again = schedules.run_now(schedule.pk, "alice")
    assert again.outcome == ScheduleTick.Outcome.SKIPPED
    assert [entry.action for entry in AuditEntry.objects.all()] == ["schedule.run_now"] * 2
    assert audit.verify().problem == ""


def test_what_comes_next_is_shown():
    schedule = Schedule(cron="0 7 * * 1-5", time_zone="Europe/Berlin")
    schedules.plan(schedule, datetime(2026, 5, 7, 12, tzinfo=UTC))
    assert iso(schedules.previewed(schedule)) == [
        "2026-05-08T05:00:00Z",
        "2026-05-11T05:00:00Z",
        "2026-05-12T05:00:00Z",
    ]
    schedule.enabled = False
    assert schedules.previewed(schedule) == []


# ── the command ───────────────────────────────────────────────────────────────────────────────


@rows
def test_the_command_tells_what_it_made():
    make_schedule(now=timezone.now() - timedelta(minutes=30))
    out = StringIO()
    call_command("run_schedules", stdout=out)
    assert f"morning: created, task {Task.objects.get().pk}" in out.getvalue()
    again = StringIO()
    call_command("run_schedules", stdout=again)
    assert again.getvalue() == ""


@rows
@pytest.mark.only_sqlite
@pytest.mark.long
def test_two_processes_and_a_loop_that_ends_with_a_signal(tmp_path):
    """The real command, twice at once against one database file, and --loop until SIGTERM."""
    environment = {**os.environ, "PILOTHOUSE_VAR_DIR": str(tmp_path)}

    def start(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=Path(__file__).parents[2],
        )

    def output(process: subprocess.Popen[str]) -> str:
        told, _ = process.communicate(timeout=60)
        assert process.returncode == 0, told
        return told

    output(start("shell", "-v0", "-c", PREPARE))
    loop = start("run_schedules", "--loop")
    assert loop.stdout is not None
    told = [loop.stdout.readline()]  # from here on it knows what SIGTERM means
    both = [start("run_schedules") for _ in range(2)]
    told += [output(process) for process in both]
    loop.terminate()
    told.append(output(loop))
    assert "created, task" in "".join(told)
    with closing(sqlite3.connect(tmp_path / "pilothouse.sqlite3")) as database:
        assert database.execute("SELECT count(*) FROM tasks_task").fetchone() == (1,)


PREPARE = """
from datetime import timedelta
from django.core.management import call_command
from django.utils import timezone
call_command("migrate", verbosity=0)
from tests.tasks.test_schedules import make_schedule
make_schedule(now=timezone.now() - timedelta(minutes=30))
"""
