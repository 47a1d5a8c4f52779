"""Whose turn it is: the watcher's query and the command that begins a run agree."""

from __future__ import annotations

import itertools
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction
from django.utils import timezone

from agent.events import ApprovalResolved, TaskRecovered
from tasks import events, starting, watching
from tasks.models import Task
from tasks.starting import may_begin
from tasks.watching import runnable
from tests.support.people import make_approval
from tests.support.rows import make_session, make_task

pytestmark = pytest.mark.django_db

LEASES = {"none": None, "over": timedelta(seconds=-1), "held": timedelta(seconds=60)}


@pytest.mark.parametrize(
    ("status", "lease", "pending", "behind"),
    list(itertools.product(Task.Status, LEASES, [False, True], [False, True])),
)
def test_the_query_finds_exactly_what_may_be_begun(
    status: Task.Status, lease: str, pending: bool, behind: bool
) -> None:
    """A drift between the two would be a task that nobody begins, or one tried for ever."""
    session = make_session()
    make_task(session, status="waiting_approval" if behind else "completed", first_position=1)
    ends = LEASES[lease]
    task = make_task(
        session,
        status=status,
        first_position=2,
        lease_worker="other:1" if ends else "",
        lease_expires_at=timezone.now() + ends if ends else None,
    )
    if pending:
        make_approval(task)
    found = Task.objects.filter(runnable(), pk=task.pk, status__in=Task.OPEN).exists()
    assert found == (may_begin(task, "me:1") is not None)
    assert found == (task.pk in watching.look(10, [], [], []).runnable)


@pytest.mark.parametrize(("by", "counted"), [("alice", 1), (None, 3)])
def test_a_person_s_word_about_an_unknown_effect_is_progress(by: str | None, counted: int) -> None:
    """Else the third crash would end a task that somebody has just told to try again."""
    session = make_session()
    task = make_task(session, status="running")
    crash = TaskRecovered(reason="x", previous_worker="other:1")
    answer = ApprovalResolved(
        approval_id=str(uuid4()),
        kind="unknown_effect",
        tool_call_id="c",
        status="approved" if by else "stale",
        answer="retry",
        resolved_by=by,
    )
    with transaction.atomic():
        events.append(task.pk, [crash, crash, answer, crash])
    assert starting._recoveries(task) == counted
