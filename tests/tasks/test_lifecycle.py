from __future__ import annotations

import uuid
from itertools import product
from typing import Any

import pytest
from django.db.models import F
from django.utils import timezone

from tasks.lifecycle import MOVES, move, sources
from tasks.models import Task
from tasks.writer import writer
from tests.support.rows import make_session, make_task

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]
S = Task.Status

ALLOWED = {
    (S.QUEUED, S.RUNNING),
    (S.QUEUED, S.CANCELLED),
    (S.QUEUED, S.FAILED),
    (S.RUNNING, S.WAITING_APPROVAL),
    (S.RUNNING, S.COMPLETED),
    (S.RUNNING, S.FAILED),
    (S.RUNNING, S.CANCELLED),
    (S.RUNNING, S.BUDGET_EXCEEDED),
    (S.WAITING_APPROVAL, S.RUNNING),
    (S.WAITING_APPROVAL, S.CANCELLED),
    (S.WAITING_APPROVAL, S.FAILED),
    (S.WAITING_APPROVAL, S.BUDGET_EXCEEDED),
}
"""As the design draws it; written out again so that a slip in the table shows."""


def moved(task: Task, **arguments: Any) -> bool:
    answer = writer.run_sync(lambda: move(task.pk, **arguments))
    task.refresh_from_db()
    return answer


def test_queued_task_starts_running():
    task = make_task()
    assert moved(task, to=S.RUNNING)
    assert task.status == S.RUNNING


def test_every_pair_moves_exactly_as_drawn():
    session = make_session()
    pairs = list(product(S, S))
    tasks = {pair: make_task(session, status=pair[0]) for pair in pairs}

    def try_all():
        return {pair: move(tasks[pair].pk, to=pair[1]) for pair in pairs}

    answers = writer.run_sync(try_all)
    assert {pair for pair, ours in answers.items() if ours} == ALLOWED
    for (frm, to), task in tasks.items():
        task.refresh_from_db()
        assert task.status == (to if (frm, to) in ALLOWED else frm)


@pytest.mark.parametrize("status", sorted(Task.TERMINAL))
def test_terminal_is_terminal(status):
    assert MOVES[status] == frozenset()
    task = make_task(status=status)
    for to in S:
        with pytest.raises(ValueError, match="never moves"):
            moved(task, to=to, frm={status})
    assert task.status == status


def test_the_table_names_every_status():
    assert set(MOVES) == set(S)


def test_only_one_of_two_wins():
    task = make_task(status=S.RUNNING)
    assert moved(task, to=S.COMPLETED)
    assert not moved(task, to=S.FAILED)
    assert task.status == S.COMPLETED


def test_every_run_raises_the_fence_and_a_takeover_must_be_meant():
    task = make_task()
    assert moved(task, to=S.RUNNING, lease_worker="here:1")
    assert task.run == 1
    assert not moved(task, to=S.RUNNING, lease_worker="here:2")
    assert moved(task, to=S.RUNNING, frm={S.RUNNING}, run=1, lease_worker="here:3")
    assert (task.run, task.lease_worker) == (2, "here:3")
    assert S.RUNNING not in sources(S.RUNNING)


def test_older_run_moves_nothing():
    task = make_task(status=S.RUNNING, run=3)
    assert not moved(task, to=S.FAILED, run=2)
    assert moved(task, to=S.FAILED, run=3)


def test_stopping_releases_the_lease_and_the_end_has_a_time():
    lease: dict[str, Any] = {"lease_worker": "here:1", "lease_expires_at": timezone.now()}
    task = make_task(status=S.RUNNING, **lease)
    assert moved(task, to=S.WAITING_APPROVAL)
    assert (task.lease_worker, task.lease_expires_at, task.finished_at) == ("", None, None)
    assert moved(task, to=S.FAILED, error={"code": "x"}, steps=F("steps") + 2)
    assert (task.error, task.steps) == ({"code": "x"}, 2)
    assert task.finished_at is not None


def test_unknown_task_moves_nowhere():
    assert not writer.run_sync(lambda: move(uuid.uuid4(), to=S.RUNNING))


def test_move_outside_a_command_is_refused():
    task = make_task()
    with pytest.raises(RuntimeError, match="inside a command"):
        move(task.pk, to=S.RUNNING)
