from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.db.models import F

from agent.events import (
    AgentCompleted,
    AssistantMessageAdded,
    BudgetWarning,
    ReasoningMessage,
    StoredEvent,
    TaskCancelled,
    TaskCreated,
    ToolCallFinished,
    ToolCallRequested,
)
from agent.text import MAX_DEPTH
from tasks import events
from tasks.canonical import canonical_json
from tasks.chain import verify_task
from tasks.conf import conf
from tasks.hub import Key, hub
from tasks.lifecycle import move
from tasks.management.commands.verify_log import broken_sessions
from tasks.models import Session, Task, TaskEvent
from tasks.writer import writer
from tests.support.appender import start_appender
from tests.support.rows import make_task

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]


@pytest.fixture
def task():
    return make_task()


def warning(step: int = 1) -> BudgetWarning:
    return BudgetWarning(step=step, which="steps", used=step, limit=12)


def call_finished(content: str, **fields: Any) -> ToolCallFinished:
    return ToolCallFinished(step=1, tool_call_id="call_1", ok=True, content=content, **fields)


def append(task: Task, *what: StoredEvent, **options: Any) -> events.Appended:
    return writer.run_sync(lambda: events.append(task.pk, what, **options))


def only(task: Task) -> events.Row:
    (row,) = events.page(task.pk)
    return row


def body(row: events.Row, *, cut: bool = False) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(events.wire_body(row, cut=cut))
    return parsed


# ── appending ─────────────────────────────────────────────────────────────────────────────────


def test_it_works(task):
    created = TaskCreated(goal=task.goal, session_id=str(task.session_id), trigger="api")
    appended = append(task, created, warning())
    assert (appended.first_sequence, appended.last_sequence) == (1, 2)
    assert (appended.first_position, appended.last_position) == (1, 2)
    assert [events.typed(row) for row in events.page(task.pk)] == [created, warning()]
    task.refresh_from_db()
    assert (task.last_sequence, task.first_position) == (2, 1)
    assert task.last_hash == events.page(task.pk)[-1].hash
    session = Session.objects.get(pk=task.session_id)
    assert (session.last_position, session.updated_at) == (2, appended.created_at)


def test_positions_span_the_tasks_of_a_session(task):
    other = make_task(task.session)
    append(task, warning(1))
    append(other, warning(2), warning(3))
    append(task, warning(4))
    rows = events.page_session(task.session_id)
    assert [row.position for row in rows] == [1, 2, 3, 4]
    assert [row.sequence for row in rows] == [1, 1, 2, 2]
    other.refresh_from_db()
    assert other.first_position == 2


def test_pages_forward_and_backward(task):
    append(task, *(warning(n) for n in range(1, 8)))
    assert [row.sequence for row in events.page(task.pk, 2, 3)] == [3, 4, 5]
    assert [row.position for row in events.page_session(task.session_id, 5, 9)] == [6, 7]
    before = events.page_session(task.session_id, limit=2, before=5)
    assert [row.position for row in before] == [3, 4]
    assert events.one(task.pk, 3) == events.page(task.pk, 2, 1)[0]
    assert events.one(task.pk, 8) is None


def test_refused_command_leaves_no_hole(task):
    async def scenario() -> list[Any]:
        def refused() -> None:
            events.append(task.pk, [warning(2)])
            raise ValueError

        def good(step: int) -> int:
            return events.append(task.pk, [warning(step)]).last_sequence

        commands: list[Callable[[], Any]] = [partial(good, 1), refused, partial(good, 3)]
        waiting = (writer.run(command) for command in commands)
        return await asyncio.gather(*waiting, return_exceptions=True)

    first, error, second = asyncio.run(scenario())
    assert isinstance(error, ValueError)
    assert (first, second) == (1, 2)
    assert [events.typed(row) for row in events.page(task.pk)] == [warning(1), warning(3)]
    assert not verify_task(task.pk).problem


def test_fence_lets_only_the_owning_run_write(task):
    Task.objects.filter(pk=task.pk).update(status=Task.Status.RUNNING, run=2)
    assert append(task, warning(), fence=2).last_sequence == 1
    with pytest.raises(events.FenceLost, match="Run 1"):
        append(task, warning(), fence=1)
    writer.run_sync(lambda: move(task.pk, to=Task.Status.WAITING_APPROVAL))
    with pytest.raises(events.FenceLost):
        append(task, warning(), fence=2)
    assert append(task, TaskCancelled(by="alice")).last_sequence == 2


def test_changes_come_with_the_events(task):
    append(task, warning(), changes={"steps": F("steps") + 1, "usage": {"input_tokens": 3}})
    append(task, warning(), changes={"final_answer": "Done"})
    task.refresh_from_db()
    assert (task.steps, task.usage, task.final_answer) == (1, {"input_tokens": 3}, "Done")
    assert not verify_task(task.pk).problem


@pytest.mark.parametrize("field", ["status", "last_sequence", "last_hash", "session"])
def test_changes_cannot_touch_what_has_one_owner(task, field):
    with pytest.raises(ValueError, match=field):
        append(task, warning(), changes={field: "x"})


def test_misuse_is_refused(task):
    with pytest.raises(RuntimeError, match="inside a command"):
        events.append(task.pk, [warning()])
    with pytest.raises(ValueError, match="at least one"):
        append(task)
    stranger = Task(pk="00000000-0000-0000-0000-000000000001")
    with pytest.raises(Task.DoesNotExist):
        append(stranger, warning())


def test_time_never_runs_backwards_even_if_the_clock_does(task):
    append(task, warning())
    future = datetime(2099, 1, 31, 9, 30, 0, 123000, tzinfo=UTC)
    Task.objects.filter(pk=task.pk).update(last_event_at=future)
    assert append(task, warning()).created_at == future
    rows = events.page(task.pk)
    assert rows[0].created_at < rows[1].created_at == future
    assert all(row.created_at.microsecond % 1000 == 0 for row in rows)
    Task.objects.filter(pk=task.pk).update(last_event_at=future.replace(microsecond=0))
    assert append(task, warning()).created_at == future.replace(microsecond=0)


def test_outsider_can_check_the_chain(task):
    append(task, warning(), call_finished("naïve  \U0001f600"))
    append(task, AgentCompleted(final_answer="Done"))
    previous = "0" * 64
    for row in TaskEvent.objects.filter(task=task).order_by("sequence"):
        when = row.created_at.astimezone(UTC)
        time = f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"
        record = f'["{row.task_id}",{row.sequence},"{row.type}","{time}",{row.payload}]'
        message = (previous + record).encode()
        previous = hmac.new(conf().audit_key, message, hashlib.sha256).hexdigest()
        assert row.hash == previous
        json.loads(record)
    assert Task.objects.get(pk=task.pk).last_hash == previous


def assert_whole(task: Task, count: int) -> None:
    rows = events.page(task.pk, limit=count + 1)
    assert [row.sequence for row in rows] == list(range(1, count + 1))
    assert [row.position for row in rows] == list(range(1, count + 1))
    assert not verify_task(task.pk).problem
    assert not list(broken_sessions())


def test_many_threads_and_processes_leave_no_gap(task):
    processes = [start_appender(str(task.pk), 20) for _ in range(2)]

    def work() -> None:
        for step in range(20):
            append(task, warning(step), warning(step))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [
        [int(line) for line in process.communicate(timeout=60)[0].split()] for process in processes
    ]
    assert [process.returncode for process in processes] == [0, 0]
    assert [len(numbers) for numbers in told] == [20, 20]
    assert_whole(task, 8 * 20 * 2 + 2 * 20)


def test_process_killed_while_appending_leaves_a_whole_log(task):
    process = start_appender(str(task.pk), 1_000_000)
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(20)]
    process.kill()
    told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    process.wait()
    process.stdout.close()
    count = TaskEvent.objects.filter(task=task).count()
    assert told == list(range(1, len(told) + 1))
    assert count >= len(told)
    assert_whole(task, count)
    assert append(task, warning()).last_sequence == count + 1


# ── publishing ────────────────────────────────────────────────────────────────────────────────


async def test_followers_hear_of_a_commit_before_the_submitter_goes_on(task):
    hub.attach(asyncio.get_running_loop())
    with hub.listen(Key("task", str(task.pk))) as seat:
        text = AssistantMessageAdded(step=1, block_id="b1", text="Hi")
        await writer.run(lambda: events.append(task.pk, [text, call_finished("ok")]))
        message, result = seat.topic.after(0)
    hub.detach()
    assert (message.sequence, message.block_id, message.text) == (1, "b1", "Hi")
    assert (result.position, result.tool_call_id, result.text) == (2, "call_1", None)
    assert message.body.startswith(b'event: assistant_message\ndata: {"sequence":1,')
    assert message.body.endswith(b"}\n\n")


async def test_nothing_is_published_of_what_was_rolled_back(task):
    hub.attach(asyncio.get_running_loop())
    with hub.listen(Key("session", str(task.session_id))) as seat:

        def refused() -> None:
            events.append(task.pk, [warning()])
            raise ValueError

        with pytest.raises(ValueError):
            await writer.run(refused)
        assert list(seat.topic.after(0)) == []
        assert not seat.bell.rung
    hub.detach()


# ── wire form ─────────────────────────────────────────────────────────────────────────────────


def test_wire_body_has_the_fixed_fields(task):
    append(task, AgentCompleted(final_answer="Done"))
    row = only(task)
    assert body(row) == {
        "sequence": 1,
        "position": 1,
        "type": "agent_completed",
        "task_id": str(task.pk),
        "created_at": events.wire_time(row.created_at),
        "payload": {"final_answer": "Done"},
    }


def test_wire_time_is_utc_with_milliseconds():
    moment = datetime(2026, 1, 31, 9, 30, 0, 7000, tzinfo=UTC)
    assert events.wire_time(moment) == "2026-01-31T09:30:00.007Z"
    later = moment.replace(microsecond=0) + timedelta(seconds=1)
    assert events.wire_time(later) == "2026-01-31T09:30:01.000Z"


def test_provider_data_is_stored_but_never_sent(task):
    secret = {"signature": "opaque"}
    thought = ReasoningMessage(step=1, block_id="b1", text="Hm \u2028", provider_data=secret)
    call = ToolCallRequested(
        step=1,
        tool_call_id="c",
        block_id="b2",
        index=0,
        name="write_file",
        arguments={"provider_data": "a column"},
        capability="file:write",
        risk="medium",
        decision="ask",
        rule="default",
        provider_data=secret,
    )
    append(task, thought, call)
    first, second = events.page(task.pk)
    assert events.typed(first) == thought
    assert body(first)["payload"] == {"step": 1, "block_id": "b1", "text": "Hm \u2028"}
    assert body(second)["payload"]["arguments"] == {"provider_data": "a column"}
    assert "provider_data" not in body(second)["payload"]
    frame = events.frame(second)
    assert (frame.block_id, frame.text) == ("b2", None)


def test_large_tool_content_is_cut_on_streams_only(task):
    content = "ä" * 3000
    append(task, call_finished(content, details={"lines": 3}), call_finished("short"))
    first, second = events.page(task.pk)
    cut = body(first, cut=True)["payload"]
    assert cut["content"] == "ä" * 2048
    assert (cut["truncated"], cut["size"]) == (True, 6000)
    assert cut["url"] == f"/api/tasks/{task.pk}/events/1"
    assert cut["details"] == {"lines": 3}
    assert body(first)["payload"]["content"] == content
    assert "truncated" not in body(second, cut=True)["payload"]


def test_small_content_beside_large_details_is_not_cut(task):
    append(task, call_finished("short", details={"html": "x" * 9000}))
    payload = body(only(task), cut=True)["payload"]
    assert payload["content"] == "short"
    assert "truncated" not in payload


def test_answers_are_never_cut(task):
    append(task, AgentCompleted(final_answer="x" * 9000))
    assert len(body(only(task), cut=True)["payload"]["final_answer"]) == 9000


def test_a_frame_is_one_line_of_data(task):
    append(task, call_finished("a\u2028b\u2029c\x85d\ne\r", details={"\u2028": "\x85"}))
    data = events.frame(only(task)).body.decode()
    assert len(data.splitlines()) == 3  # event, data, the blank line
    assert json.loads(data.split("data: ")[1])["payload"]["content"] == "a\u2028b\u2029c\x85d\ne\r"


# ── canonical JSON ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, 1.5]}, '{"a":[true,null,1.5],"b":1}'),
        ({"é": 1, "z": 2, "\U0001f600": 3, "\uffff": 4}, '{"z":2,"é":1,"\uffff":4,"\U0001f600":3}'),
        ("a\u2028b\u2029c\x85", '"a\\u2028b\\u2029c\\u0085"'),
        ([float("nan"), float("inf"), 10**30], "[null,null,1000000000000000000000000000000]"),
        ("\ud83d\ude00 \ud800 \x00", '"\U0001f600 \ufffd \ufffd"'),
        ("\\u0000", '"\\\\u0000"'),
        ({1: "\ud800", (1, 2): 3}, '{"(1, 2)":3,"1":"\ufffd"}'),
        (object, "\"<class 'object'>\""),
    ],
)
def test_canonical_json(value, text):
    assert canonical_json(value) == text


def test_same_value_has_the_same_text_however_it_was_built():
    nested: object = "x"
    for _ in range(MAX_DEPTH):
        nested = {"b": nested, "a": 1}
    text = canonical_json(nested)
    assert canonical_json(json.loads(text)) == text
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


def test_odd_values_in_a_payload_are_stored_as_their_strings(task):
    append(
        task, call_finished("a\x00\ud800", details={"what": object, "n": float("nan"), "t": (1,)})
    )
    payload = body(only(task))["payload"]
    assert payload["content"] == "a\ufffd\ufffd"
    assert payload["details"] == {"what": "<class 'object'>", "n": None, "t": [1]}
    assert not verify_task(task.pk).problem


def test_append_may_stand_in_any_transaction(task):
    with transaction.atomic():
        assert events.append(str(task.pk), [warning()]).last_sequence == 1
