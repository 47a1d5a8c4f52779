"""Streams of sessions, and the chat's."""

from __future__ import annotations

import json
import logging
from functools import partial
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import RequestFactory

from agent.events import (
    ApprovalRequired,
    AssistantMessageAdded,
    ErrorInfo,
    ReasoningMessage,
    StoredEvent,
    TaskFailed,
    ToolCallFinished,
)
from streaming.views import stream_view
from tasks import events
from tasks.models import Approval, Task
from tasks.writer import writer
from tests.support.counting import python_calls
from tests.support.people import House, make_approval
from tests.support.rows import make_task
from tests.support.watching import HEARTBEAT, Open, finish, path_of, store, warning

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


def question(approval_id: UUID) -> ApprovalRequired:
    return ApprovalRequired(
        step=1,
        kind="call",
        tool_call_id="call-1",
        name="write_file",
        arguments={"path": "a.txt"},
        capability="file:write",
        risk="medium",
        reason="",
        rule="",
        diff="",
        options=[],
        arguments_digest="",
        target_digest="",
        approval_id=str(approval_id),
    )


def ask(task: Task) -> None:
    """Two questions in one transaction, as a run stops with them."""
    asked = [make_approval(task, tool_call_id=f"call-{number}") for number in (1, 2)]
    events.append(task.pk, [question(approval.pk) for approval in asked])


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


async def test_a_log_that_is_over_is_told_as_it_was_told_live(open_: Open, task: Task) -> None:
    call = partial(ToolCallFinished, step=1, ok=True)
    odd: list[StoredEvent] = [
        call(tool_call_id="c1", content="é\u2028" * 3000),  # cut, with the place of the whole
        call(tool_call_id="c2", content="short", details={"rows": "x" * 2000}),
        ReasoningMessage(step=1, block_id="r", text="why", provider_data={"signature": "s"}),
        AssistantMessageAdded(step=1, block_id="a", text="word " * 80_000),  # more than a page
    ]
    await store(task, *(warning(number) for number in range(250)))
    for event in odd:
        await store(task, event)
    await finish(task)
    await store(task, warning())  # behind the end
    rows = await sync_to_async(events.page)(task.pk, 0, 1000)
    told = [b"id: %d\n" % row.sequence + events.frame(row).body for row in rows[:-1]]
    for cursor in (0, 120, 251, 253):
        replay = open_(path_of(task), last_event_id=str(cursor))
        replay.reader.last_id = cursor or None
        await replay.end()
        _, _, log = replay.body.replace(b": heartbeat\n\n", b"").partition(b"\n\nid: ")
        assert b"id: " + log == b"".join(told[cursor:])


@pytest.mark.only_sqlite
def test_an_event_of_a_log_that_is_over_takes_few_calls(task: Task) -> None:
    """As a row and a frame it takes eight, and the follower as many again."""
    with transaction.atomic():
        events.append(task.pk, [warning(number) for number in range(400)])
    events.past(task.pk, 0, 1, 1000)
    with python_calls() as calls:
        assert events.past(task.pk, 0, 400, 2**20).count == 400
    assert len(calls) < 4 * 400
