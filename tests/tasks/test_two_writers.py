"""Two processes that create, steer and append in one session never wait for each other crosswise."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.events import ToolCallStarted
from tasks import commands, events
from tasks.commands import TaskRequest
from tasks.models import Task, TaskEvent
from tasks.writer import Writer
from tests.support.rows import make_session, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def test_steering_and_appending_do_not_deadlock() -> None:
    session = make_session()
    task = make_task(session, status=Task.Status.RUNNING, run=1)
    request = TaskRequest(
        goal="Also",
        owner_id=session.owner_id,
        trigger="api",
        session_id=session.pk,
        when_busy="steer",
    )
    event = ToolCallStarted(step=1, tool_call_id="c")
    writers = [Writer(), Writer()]
    try:
        with ThreadPoolExecutor(8) as pool:
            jobs = [
                pool.submit(writers[0].run_sync, lambda: commands.create(request))
                for _ in range(60)
            ] + [
                pool.submit(writers[1].run_sync, lambda: events.append(task.pk, [event], fence=1))
                for _ in range(60)
            ]
            for job in jobs:
                job.result(60)
    finally:
        for each in writers:
            each.stop()
    assert TaskEvent.objects.filter(task=task).count() == 120
