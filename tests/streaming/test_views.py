"""The streams over ASGI: the real store, the writer's thread, Django's handler."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.test import RequestFactory
from pytest_django import Settings

from agent.events import (
    ApprovalRequired,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetWarning,
    ErrorInfo,
    ReasoningMessage,
    StoredEvent,
    TaskCompleted,
    TaskFailed,
    ToolCallFinished,
)
from streaming.asgi.lanes import LANES, LaneHandler
from streaming.follow import follow, heard
from streaming.views import greet_task, respond, stream_view, task_source
from tasks import events, relay
from tasks.access import Principal
from tasks.conf import conf
from tasks.hub import Key, StoredFrame, hub
from tasks.lane import Lane
from tasks.models import ApiToken, Approval, Session, Task
from tasks.writer import writer
from tests.support.counting import python_calls
from tests.support.people import House, bearer, let_decide_everywhere, make_approval, make_house
from tests.support.rows import make_task
from tests.support.sse import Event, Parser, Reader

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_hub")]

HEARTBEAT = 0.05


class Exchange:
    """One request to the application, as an ASGI server makes it."""

    def __init__(
        self, app: LaneHandler, path: str, headers: dict[str, str], method: str = "GET"
    ) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.parser = Parser()
        self.reader = Reader()
        self.events: list[Event] = []
        self.reading = asyncio.Event()
        """Cleared: the client does not take what is sent."""
        self.reading.set()
        self._changed = asyncio.Condition()
        self._left = asyncio.Event()
        self._asked = False
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "server": ("127.0.0.1", 80),
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }
        scope["headers"].append((b"host", b"127.0.0.1"))  # type: ignore[attr-defined]
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        await self.reading.wait()
        async with self._changed:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {k.decode().lower(): v.decode() for k, v in message["headers"]}
            else:
                self._take(message.get("body", b""))
            self._changed.notify_all()

    def _take(self, body: bytes) -> None:
        self.body += body
        if self.headers.get("content-type") == "text/event-stream":
            for event in self.parser.feed(body):
                self.events.append(event)
                self.reader.apply(event)

    async def until(self, holds: Callable[[Exchange], bool]) -> None:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: holds(self))

    async def end(self) -> Exchange:
        async with asyncio.timeout(10):
            await asyncio.shield(self.task)
        return self

    async def leave(self) -> None:
        self._left.set()
        await self.end()

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]


Open = Callable[..., Exchange]


@pytest.fixture
async def open_(house: House) -> AsyncIterator[Open]:
    """`open_(path, user=…, last_event_id=…)`; whatever is open at the end leaves."""
    app = LaneHandler()
    opened: list[Exchange] = []
    tokens = {
        user.username: await sync_to_async(bearer)(user) for user in (house.alice, house.charlie)
    }

    def open_(path: str, *, user: str = "alice", method: str = "GET", **headers: str) -> Exchange:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange = Exchange(app, path, tokens.get(user, {}) | named, method)
        opened.append(exchange)
        return exchange

    yield open_
    await asyncio.gather(*(exchange.leave() for exchange in opened))
    await app.close(5)


@pytest.fixture
def house(tmp_path: Path, settings: Settings) -> Iterator[House]:
    settings.PILOTHOUSE = replace(conf(), sse_heartbeat_seconds=HEARTBEAT)
    yield make_house(tmp_path / "desk")
    writer.stop()


@pytest.fixture
def task(house: House) -> Task:
    return make_task(house.session, status=Task.Status.RUNNING)


def warning(number: int = 1) -> BudgetWarning:
    return BudgetWarning(step=1, which="steps", used=number, limit=300)


async def store(task: Task, *stored: StoredEvent, status: str | None = None) -> None:
    await writer.run(partial(events.append, task.pk, stored))
    if status is not None:
        await Task.objects.filter(pk=task.pk).aupdate(status=status)


async def finish(task: Task) -> None:
    """The terminal event and the status in one transaction, as the runner writes them."""

    def command() -> None:
        events.append(task.pk, [TaskCompleted()])
        Task.objects.filter(pk=task.pk).update(status=Task.Status.COMPLETED)

    await writer.run(command)


def path_of(task: Task) -> str:
    return f"/api/tasks/{task.pk}/stream"


async def test_a_stream_follows_a_task_to_its_end(open_: Open, task: Task) -> None:
    await store(task, warning())
    stream = open_(path_of(task))
    await stream.until(lambda s: s.reader.ids == [1])
    hub.running(str(task.pk), str(task.session_id), 1, 1)
    delta = AssistantDelta(step=1, block_id="a", offset=0, delta="Hel")
    relay.publish(str(task.pk), str(task.session_id), delta)
    await stream.until(lambda s: "assistant_delta" in s.types)
    await store(task, AssistantMessageAdded(step=1, block_id="a", text="Hello"))
    await finish(task)
    hub.idle(str(task.pk))
    await stream.end()

    assert stream.status == 200
    assert stream.reader.ids == [1, 2, 3]
    assert stream.types[-4:] == [
        "assistant_delta",
        "assistant_delta",
        "assistant_message",
        "task_completed",
    ]
    assert stream.events[0].payload == {
        "status": "running",
        "last_sequence": 1,
        "heartbeat": HEARTBEAT,
    }
    assert stream.body.startswith(b": connected\n\nretry: 2000\n\n")


async def test_what_a_young_task_has_stored_comes_with_the_look(
    open_: Open, task: Task, settings: Settings
) -> None:
    settings.PILOTHOUSE = replace(conf(), sse_heartbeat_seconds=60)
    await store(task, warning(1), warning(2))
    hops = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal hops
        hops += event == "call" and frame.f_code is Lane.ask.__code__

    sys.setprofile(note)
    try:
        for after, ids in ((0, [1, 2]), (1, [2]), (2, [])):
            stream = open_(f"{path_of(task)}?after={after}")
            stream.reader.last_id = after
            await stream.until(partial(_has, ids))
    finally:
        sys.setprofile(None)
    assert hops == 3


def _has(ids: list[int], stream: Exchange) -> bool:
    return bool(stream.events) and stream.reader.ids == ids


async def test_before_something_large_only_what_is_brief_comes_with_the_look(
    open_: Open, task: Task
) -> None:
    large = AssistantMessageAdded(step=1, block_id="a", text="x" * 100_000)
    await store(task, warning(1), large, warning(2))
    assert [row.sequence for row in await sync_to_async(events.brief)(task.pk, 0, 3, 8192)] == [1]
    stream = open_(path_of(task))
    await stream.until(lambda s: s.reader.ids == [1, 2, 3])


class Relay:
    """Where runs of other processes would be; knows what was subscribed to."""

    def __init__(self) -> None:
        self.keys: list[Key] = []

    def followed(self, key: Key) -> None:
        self.keys.append(key)

    def unfollowed(self, key: Key) -> None: ...
    def running(self, task_id: str, session_id: str) -> None: ...
    def idle(self, task_id: str, session_id: str) -> None: ...
    def grew(self, task_id: str, session_id: str) -> None: ...
    def committed(self, frames: Sequence[StoredFrame]) -> None: ...


async def test_nothing_is_subscribed_to_before_it_is_known_who_asks(
    open_: Open, task: Task
) -> None:
    peers = Relay()
    hub.attach(asyncio.get_running_loop(), peers=peers)
    assert (await open_(path_of(task), user="nobody").end()).status == 401
    assert (await open_(path_of(task), user="charlie").end()).status == 404
    assert peers.keys == []
    stream = open_(path_of(task))
    await stream.until(lambda s: bool(s.events))
    assert peers.keys == [Key("task", str(task.pk))]


async def test_headers_keep_proxies_and_caches_out_of_the_way(open_: Open, task: Task) -> None:
    stream = open_(path_of(task), accept_encoding="gzip")
    await stream.until(lambda s: bool(s.events))
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-cache, no-transform"
    assert stream.headers["x-accel-buffering"] == "no"
    assert stream.headers["content-encoding"] == "identity"


async def test_a_silent_stream_still_beats(open_: Open, task: Task) -> None:
    stream = open_(path_of(task))
    await stream.until(lambda s: s.parser.comments.count("heartbeat") >= 2)
    assert stream.types == ["connected"]


async def test_two_followers_of_the_real_store_see_identical_ids(open_: Open, task: Task) -> None:
    first = open_(path_of(task))
    for number in range(20):
        await store(task, warning(number))
    second = open_(path_of(task), last_event_id="7")
    second.reader.last_id = 7
    await asyncio.gather(*(store(task, warning(number)) for number in range(20)))
    await finish(task)
    await asyncio.gather(first.end(), second.end())
    assert first.reader.ids == list(range(1, 42))
    assert second.reader.ids == list(range(8, 42))


# ── the end, and cursors ──────────────────────────────────────────────────────────────────────


async def test_a_finished_task_is_replayed_and_then_there_is_nothing(
    open_: Open, task: Task
) -> None:
    await store(task, warning())
    await finish(task)
    replay = await open_(path_of(task)).end()
    assert replay.reader.ids == [1, 2]
    for cursor in ("2", "3", "999999999999999999999"):
        after = await open_(path_of(task), last_event_id=cursor).end()
        assert (after.status, after.body) == (204, b"")


@pytest.mark.parametrize(
    ("header", "query", "expected"),
    [
        (None, "", 1),
        ("0", "", 1),
        ("5", "", 6),
        ("299", "", 300),
        ("300", "", 204),
        ("301", "", 204),
        ("999999999999999999999", "", 204),
        ("", "", 1),
        (" 5", "", 6),
        (None, "?last_event_id=5", 6),
        (None, "?after=6", 7),
        ("7", "?last_event_id=5", 8),
        ("-1", "", 400),
        ("abc", "", 400),
        ("5.0", "", 400),
        (None, "?after=%205", 400),
        (None, "?last_event_id=%D9%A5", 400),
        ("9" * 10_240, "", 400),
    ],
)
async def test_strange_cursors(
    open_: Open, task: Task, header: str | None, query: str, expected: int
) -> None:
    await store(task, *(warning(number) for number in range(299)))
    await finish(task)
    headers = {} if header is None else {"last_event_id": header}
    stream = open_(path_of(task) + query, **headers)
    if expected not in (204, 400):
        stream.reader.last_id = expected - 1
    await stream.end()
    if expected not in (204, 400):
        assert stream.status == 200
        assert stream.reader.ids == list(range(expected, 301))
    else:
        assert stream.status == expected
        assert expected == 204 or b'"code":"invalid_cursor"' in stream.body


async def test_a_cursor_of_another_task_shows_nothing_of_it(
    open_: Open, house: House, task: Task
) -> None:
    other = await sync_to_async(make_task)(house.session, status=Task.Status.RUNNING)
    await store(other, *(warning(number) for number in range(50)))
    await store(task, warning())
    stream = open_(path_of(task), last_event_id="40")
    await stream.until(lambda s: "heartbeat" in s.parser.comments)
    stream.reader.last_id = 1
    await finish(task)
    await stream.end()
    assert {event.task_id for event in stream.reader.stored} == {str(task.pk)}


async def test_what_is_stored_between_the_look_and_the_listening_is_not_missed(task: Task) -> None:
    with heard("task", str(task.pk)):
        source = task_source(
            Principal(user_id=task.owner_id, username="alice"), task.pk, greet_task(task)
        )
        await store(task, warning())
        stream = await respond(follow(source, 0), "a task")
    async with aclosing(stream.chunks) as chunks:
        assert b"event: budget_warning" in await anext(chunks)
    assert hub.is_empty()


async def test_a_stream_opened_as_the_task_ends_ends_too(open_: Open, task: Task) -> None:
    await store(task, warning())
    streams = [open_(path_of(task)) for _ in range(5)]
    await finish(task)
    streams += [open_(path_of(task)) for _ in range(5)]
    for stream in streams:
        await stream.end()
        assert stream.reader.ids == [1, 2]


# ── who may ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "path", ["/api/tasks/{}/stream", "/api/sessions/{}/stream", "/api/stream/{}"]
)
async def test_unknown_foreign_and_malformed_ids_look_the_same(
    open_: Open, house: House, task: Task, path: str
) -> None:
    real = task.pk if "tasks" in path else house.session.pk
    asked: list[tuple[object, str]] = [(uuid4(), "alice"), ("nonsense", "alice"), (real, "charlie")]
    answers = [await open_(path.format(id_), user=user).end() for id_, user in asked]
    assert {answer.status for answer in answers} == {404}
    assert len({answer.body for answer in answers}) == 1
    assert b'{"error":{"code":"not_found"' in answers[0].body

    nobody = await open_(path.format(real), user="nobody").end()
    assert (nobody.status, nobody.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    "path", ["/api/tasks/{}/stream", "/api/sessions/{}/stream", "/api/stream/{}"]
)
@pytest.mark.parametrize("method", ["HEAD", "POST", "DELETE"])
async def test_a_stream_is_only_for_get(open_: Open, task: Task, path: str, method: str) -> None:
    answer = await open_(path.format(task.pk), method=method).end()
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


async def test_a_token_needs_the_scope(open_: Open, house: House, task: Task) -> None:
    token = await sync_to_async(partial(bearer, house.alice, scopes=["write"]))()
    answer = await open_(path_of(task), user="nobody", **token).end()
    assert answer.status == 403


async def test_a_revoked_token_ends_the_stream(open_: Open, task: Task) -> None:
    stream = open_(path_of(task))
    await stream.until(lambda s: bool(s.events))
    await ApiToken.objects.all().adelete()
    await stream.end()
    assert not stream.reader.ended


async def test_a_right_that_is_taken_away_ends_the_stream(
    open_: Open, house: House, task: Task
) -> None:
    await sync_to_async(make_approval)(task)
    await sync_to_async(let_decide_everywhere)(house.charlie)
    stream = open_(path_of(task), user="charlie")
    await stream.until(lambda s: bool(s.events))
    await sync_to_async(house.charlie.user_permissions.clear)()
    await stream.end()
    assert not stream.reader.ended


@pytest.mark.parametrize("path", ["/api/tasks/{1.pk}/stream", "/api/sessions/{0.pk}/stream"])
async def test_a_session_that_is_deleted_ends_its_streams(
    open_: Open, house: House, task: Task, path: str
) -> None:
    stream = open_(path.format(house.session, task))
    await stream.until(lambda s: bool(s.events))
    await Session.objects.aupdate(hidden=True)
    await stream.end()
    assert stream.status == 200


# ── the life of a connection ──────────────────────────────────────────────────────────────────


async def test_a_client_that_vanishes_leaves_nothing_behind(open_: Open, task: Task) -> None:
    streams = [open_(path_of(task)) for _ in range(3)]
    for stream in streams:
        await stream.until(lambda s: bool(s.events))
    for stream in streams:
        await stream.leave()
    assert hub.is_empty()


async def test_a_client_that_vanishes_in_the_middle_of_a_write_leaves_nothing_behind(
    open_: Open, task: Task
) -> None:
    stream = open_(path_of(task))
    await stream.until(lambda s: bool(s.events))
    stream.reading.clear()
    await store(task, warning())
    await asyncio.sleep(0.01)
    await stream.leave()
    assert hub.is_empty()


async def test_a_stop_of_the_server_ends_the_streams(open_: Open, task: Task) -> None:
    stream = open_(path_of(task))
    await stream.until(lambda s: bool(s.events))
    hub.shutdown()
    await stream.end()
    assert stream.types == ["connected"]


async def test_open_streams_hold_no_threads(open_: Open, task: Task) -> None:
    before = threading.active_count()
    streams = [open_(path_of(task)) for _ in range(40)]
    for stream in streams:
        await stream.until(lambda s: bool(s.events))
    assert threading.active_count() <= before + LANES + 2


async def test_a_stream_that_breaks_is_logged_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    async def breaking() -> AsyncGenerator[bytes, None]:
        yield b": connected\n\n"
        raise RuntimeError("the database is gone")

    response = await respond(breaking(), "task 7")
    chunks = [chunk async for chunk in aiter(response)]
    assert chunks == [b": connected\n\n"]
    [record] = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "The stream of task 7 broke")
    assert record.exc_info


# ── the runner's bell ─────────────────────────────────────────────────────────────────────────


async def rung() -> list[str]:
    layer = get_channel_layer()
    assert layer is not None
    heard = []
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.05):
                heard.append((await layer.receive("runs"))["task_id"])
    return heard


async def test_opening_the_stream_of_a_runnable_task_rings_the_runner(
    open_: Open, house: House, task: Task
) -> None:
    await rung()
    waiting = house.task
    for status, pending, expected in (
        ("running", "pending", []),
        ("queued", "pending", [str(waiting.pk)]),
        ("waiting_approval", "pending", []),
        ("waiting_approval", "approved", [str(waiting.pk)]),
    ):
        await Task.objects.filter(pk=waiting.pk).aupdate(status=status)
        await Approval.objects.aupdate(status=pending)
        stream = open_(path_of(waiting))
        await stream.until(lambda s: bool(s.events))
        assert await rung() == expected, status


# ── sessions ──────────────────────────────────────────────────────────────────────────────────


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
