"""The ASGI edge, shim by shim, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest
from django.db import connections

from streaming.asgi.body import BodyLimit
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import LaneHandler
from streaming.asgi.streams import EventStream, Request
from streaming.asgi.wire import Message, Receive, Scope, Send
from tests.support import probe
from tests.support.counting import circles
from tests.support.peer import Peer, client


async def test_fifty_sync_views_with_async_inside_finish_on_four_threads(
    lanes: LaneHandler,
) -> None:
    before = threading.active_count()
    async with client(lanes) as http:
        answers = await asyncio.gather(*(http.get("/sync") for _ in range(50)))
    assert [answer.json() for answer in answers] == [{"users": 0, "same_thread": True}] * 50
    assert threading.active_count() <= before + 4


async def test_a_blocked_lane_holds_nobody_else_up(lanes: LaneHandler) -> None:
    async with client(lanes) as http:
        blocked = asyncio.create_task(http.get("/sleep", params={"seconds": 1}))
        await asyncio.sleep(0.2)
        answers = [await http.get("/sync") for _ in range(5)]
        assert not blocked.done()
        assert {answer.status_code for answer in answers} == {200}
        assert (await blocked).text == "slept"


async def test_a_request_whose_view_asks_no_thread_needs_none(lanes: LaneHandler) -> None:
    before = set(threading.enumerate())
    async with client(lanes) as http:
        assert (await http.get("/stats")).status_code == 200
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize(("seconds", "left"), [(None, True), (0, False)])
async def test_connections_of_a_lane_live_as_long_as_the_settings_say(
    urls: None,
    transactional_db: None,
    monkeypatch: pytest.MonkeyPatch,
    seconds: int | None,
    left: bool,
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", seconds)
    handler = LaneHandler(lanes=1)
    async with client(handler) as http:
        assert (await http.get("/sync")).status_code == 200
    (lane,) = handler._lanes
    open_ = await asyncio.wrap_future(lane.submit(lambda: connections["default"].connection))
    assert (open_ is not None) is left
    await handler.close(5)


async def test_a_request_that_ends_behind_its_lanes_ends_well(
    urls: None, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    handler = LaneHandler(lanes=1)
    ended = asyncio.Event()

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        async def held(message: Message) -> None:
            if not ended.is_set():
                await handler.close(5)
                ended.set()
            await send(message)

        await handler(scope, receive, held)

    async with client(whole, raises=True) as http:
        assert (await http.get("/sleep", params={"seconds": 0})).text == "slept"
    assert ended.is_set()


async def test_files_of_a_form_are_closed_behind_the_answer(lanes: LaneHandler) -> None:
    async with client(lanes) as http:
        assert (await http.post("/upload", files={"file": b"some"})).text == "had it"
    assert probe.uploads.pop().closed


async def test_an_exception_in_a_view_is_a_500_and_the_lane_goes_on(lanes: LaneHandler) -> None:
    async with client(lanes) as http:
        assert (await http.get("/fail")).status_code == 500
        assert (await http.get("/sync")).status_code == 200


# ── streams ───────────────────────────────────────────────────────────────────────────────────


async def test_who_leaves_with_the_last_chunk_disturbs_nobody_behind_the_stream() -> None:
    loop = asyncio.get_running_loop()
    left, last = loop.create_future(), loop.create_future()
    waiting = asyncio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        await left
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"one"
        waiting.set()
        await last

    async def stream() -> None:
        request = Request(receive, send)
        request.keep(EventStream(b"zero", chunks()))
        await request.finish()
        await asyncio.sleep(0)

    task = asyncio.create_task(stream())
    await waiting.wait()
    left.set_result(None)
    last.set_result(None)
    await task
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.mark.parametrize("end", ["it ends", "the client leaves", "the server gives it up"])
async def test_a_stream_leaves_nothing_to_the_collector(end: str) -> None:
    over = asyncio.Event()

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield b"one"
        await over.wait()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(receive, send)
        await request.take_body()
        request.keep(EventStream(b"zero", chunks()))
        await request.finish()

    async def follow() -> None:
        peer = Peer()
        asked = peer.call(exchanges)
        async with asyncio.timeout(10):
            await peer.has_body.wait()
            if end == "it ends":
                over.set()
            elif end == "the client leaves":
                peer.inbox.put_nowait({"type": "http.disconnect"})
            else:
                asked.cancel()
            await asyncio.wait({asked})

    exchanges = OpenExchanges(BodyLimit(stream))
    with circles() as found:
        await follow()
    assert not found
