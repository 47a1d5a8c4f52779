"""Streams of sessions, and the chat's."""

from __future__ import annotations

import json
import logging
from functools import partial

import pytest
from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import RequestFactory

from agent.events import (
    ErrorInfo,
    TaskFailed,
)
from streaming.views import stream_view
from tasks import events
from tasks.models import Approval, Task
from tasks.writer import writer
from tests.support.people import House, make_approval
from tests.support.questions import question
from tests.support.rows import make_task
from tests.support.watching import HEARTBEAT, Open, finish, store, warning

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_hub")]


async def test_a_session_stream_spans_tasks_and_says_where_each_stands(
    open_: Open, house: House, task: Task
) -> None:
    await store(task, warning())
    await finish(task)
    second = await sync_to_async(make_task)(house.session)
    stream = open_(f"/api/sessions/{house.session.pk}/stream", last_event_id="1")
    stream.reader.last_id = 1
    await store(second, warning())
    await store(second, TaskFailed(error=ErrorInfo(code="x", message="x")))
    await stream.until(lambda s: s.reader.ids == [2, 3, 4])
    assert not stream.task.done()
    connected = stream.events[0].payload
    assert connected["position"] in (2, 3, 4)
    assert connected["heartbeat"] == HEARTBEAT
    by_id = {item["id"]: item for item in connected["tasks"]}
    assert by_id[str(task.pk)] == {
        "id": str(task.pk),
        "status": "completed",
        "last_sequence": 2,
    }
    assert len(by_id) == 3


# ── the chat API ──────────────────────────────────────────────────────────────────────────────


def ask(task: Task) -> None:
    """Two questions in one transaction, as a run stops with them."""
    asked = [make_approval(task, tool_call_id=f"call-{number}") for number in (1, 2)]
    events.append(task.pk, [question(approval_id=str(approval.pk)) for approval in asked])


async def test_the_chat_stream_says_what_waits_and_what_is_done(
    open_: Open, house: House, task: Task
) -> None:
    await Approval.objects.all().adelete()
    stream = open_(f"/api/stream/{house.session.pk}")
    await stream.until(lambda s: bool(s.events))
    await writer.run(partial(ask, task))
    await stream.until(lambda s: "confirm_required" in s.types)
    assert stream.types[-3:] == ["approval_required", "approval_required", "confirm_required"]
    asked = stream.events[-1].payload
    assert asked["task_id"] == str(task.pk)
    assert [item["tool_call_id"] for item in asked["approvals"]] == ["call-1", "call-2"]
    assert asked["approvals"][0]["arguments"] == {"path": "a.txt", "content": "hello"}

    late = open_(f"/api/stream/{house.session.pk}", last_event_id="2")
    late.reader.last_id = 2
    await late.until(lambda s: s.types == ["connected", "confirm_required"])

    await Approval.objects.aupdate(status="approved")
    await finish(task)
    for each in (stream, late):
        await each.until(lambda s: s.types[-1] == "done")
        assert each.events[-1].payload == {"task_id": str(task.pk), "status": "completed"}
        assert each.types.count("confirm_required") == 1

    replay = open_(f"/api/stream/{house.session.pk}")
    await replay.until(lambda s: "done" in s.types)
    await replay.until(lambda s: "heartbeat" in s.parser.comments)
    assert "confirm_required" not in replay.types


async def test_a_bug_in_a_stream_is_told_as_the_api_tells_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @stream_view
    async def broken(request: HttpRequest) -> HttpResponseBase:
        raise ZeroDivisionError("secret detail")

    with caplog.at_level(logging.CRITICAL, logger="tasks.api.errors"):
        response = await broken(RequestFactory().get("/api/tasks/1/stream"))
    assert response.status_code == 500
    assert isinstance(response, HttpResponse)
    assert json.loads(response.content)["error"]["code"] == "internal"
    assert b"secret detail" not in response.content
