"""Who may open a stream, what its end leaves behind, and that it wakes the runner."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncGenerator
from functools import partial
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer

from streaming.asgi.lanes import LANES
from streaming.views import respond
from tasks.hub import hub
from tasks.models import ApiToken, Approval, Session, Task
from tests.support.people import House, bearer, let_decide_everywhere, make_approval
from tests.support.watching import Open, path_of, store, warning

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_hub")]


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
