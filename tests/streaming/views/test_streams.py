"""Streams over ASGI, from the real store through the writer's thread and Django's handler."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from types import FrameType

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from pytest_django import Settings

from agent.events import (
    AssistantDelta,
    AssistantMessageAdded,
    ReasoningMessage,
    StoredEvent,
    ToolCallFinished,
)
from streaming.follow import follow, heard
from streaming.views import greet_task, respond, task_source
from tasks import events, relay
from tasks.access import Principal
from tasks.conf import conf
from tasks.hub import Key, StoredFrame, hub
from tasks.lane import Lane
from tasks.models import Task
from tests.support.counting import python_calls
from tests.support.people import House
from tests.support.rows import make_task
from tests.support.watching import HEARTBEAT, Open, Watched, finish, path_of, store, warning

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_hub")]


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


def _has(ids: list[int], stream: Watched) -> bool:
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
