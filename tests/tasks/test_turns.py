"""Whose turn it is: the watcher's query and the command that begins a run agree."""

from __future__ import annotations

import itertools
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks import runner
from tasks.models import Task
from tasks.runner import runnable
from tasks.starting import may_begin
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
    assert found == (task.pk in runner._look(10, [], [], []).runnable)
