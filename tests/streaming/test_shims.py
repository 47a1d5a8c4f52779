"""The ASGI edge, shim by shim, without a server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from django.db import connections
from pytest_django import Settings

from streaming.asgi.body import BodyLimit, Bounds
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import LaneHandler
from streaming.asgi.lifetime import Lifetime, StartError
from streaming.asgi.pressure import BackPressure, Pressure
from streaming.asgi.streams import EventStream, Request
from streaming.asgi.wire import App, Message, Receive, Scope, Send
from tests.support import probe

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}
REQUEST = {"type": "http.request", "body": b"", "more_body": False}


class Peer:
    """The server's side of one request."""

    def __init__(self, *messages: Message) -> None:
        self.sent: list[Message] = []
        self.has_body = asyncio.Event()
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        for message in messages or (REQUEST,):
            self.inbox.put_nowait(message)

    async def receive(self) -> Message:
        return await self.inbox.get()

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.has_body.set()

    def call(self, app: App, path: str = "/") -> asyncio.Task[None]:
        async def request() -> None:
            await app({**SCOPE, "path": path}, self.receive, self.send)

        return asyncio.create_task(request())

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


@pytest.fixture
def urls(settings: Settings) -> None:
    settings.ROOT_URLCONF = probe.__name__
    settings.MIDDLEWARE = []
    settings.ALLOWED_HOSTS = ["*"]


@pytest.fixture
async def lanes(urls: None, transactional_db: None) -> AsyncIterator[LaneHandler]:
    handler = LaneHandler(lanes=4)
    yield handler
    await handler.close(5)


def client(app: Any, *, raises: bool = False) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
    return httpx.AsyncClient(transport=transport, base_url="http://testserver", timeout=20)


# ── lanes ─────────────────────────────────────────────────────────────────────────────────────


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


# ── exchanges ─────────────────────────────────────────────────────────────────────────────────


def streaming_app(log: list[str]) -> App:
    """Does with its tasks what Django does."""

    async def pieces(send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            await asyncio.Event().wait()
        finally:
            log.append("finally")

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        sending = asyncio.create_task(pieces(send))
        listening = asyncio.create_task(_listen(receive))
        await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
        log.append(listening.result())
        sending.cancel()
        await asyncio.wait({sending})

    return app


async def _listen(receive: Receive) -> str:
    return str((await receive())["type"])


async def test_closing_ends_a_stream_properly_and_runs_its_finally() -> None:
    log: list[str] = []
    exchanges = OpenExchanges(streaming_app(log))
    peer = Peer()
    request = peer.call(exchanges)
    await asyncio.sleep(0.01)
    await exchanges.close(5)
    await request
    assert log == ["http.disconnect", "finally"]
    assert peer.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_server_that_cancels_a_stream_still_lets_its_finally_run() -> None:
    log: list[str] = []
    request = Peer().call(OpenExchanges(streaming_app(log)))
    await asyncio.sleep(0.01)
    request.cancel()
    await asyncio.wait({request})
    assert request.cancelled()
    assert log == ["http.disconnect", "finally"]


async def test_while_draining_a_cancelled_request_stays_open_until_the_close() -> None:
    log: list[str] = []
    exchanges = OpenExchanges(streaming_app(log))
    request = Peer().call(exchanges)
    await asyncio.sleep(0.01)
    exchanges.begin_draining()
    request.cancel()
    await asyncio.sleep(0.01)
    assert log == []
    await exchanges.close(5)
    await asyncio.wait({request})
    assert log == ["http.disconnect", "finally"]


async def test_a_client_who_leaves_ends_the_stream() -> None:
    log: list[str] = []
    peer = Peer(REQUEST, {"type": "http.disconnect"})
    await peer.call(OpenExchanges(streaming_app(log)))
    assert log == ["http.disconnect", "finally"]
    assert peer.sent[-1]["more_body"] is True


async def test_closing_while_a_body_is_uploaded_answers_503() -> None:
    exchanges = OpenExchanges(streaming_app_that_reads_its_body)
    peer = Peer({"type": "http.request", "body": b"half", "more_body": True})
    request = peer.call(exchanges)
    await asyncio.sleep(0.01)
    await exchanges.close(5)
    await request
    assert peer.status == 503
    assert b'"code":"shutting_down"' in peer.sent[1]["body"]


async def test_an_answer_that_takes_too_long_at_the_close_is_503() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await asyncio.Event().wait()

    exchanges = OpenExchanges(app)
    peer = Peer()
    request = peer.call(exchanges)
    await asyncio.sleep(0.01)
    await exchanges.close(0.01)
    await request
    assert peer.status == 503


async def test_a_server_that_gives_a_request_up_ends_the_making_of_its_answer() -> None:
    log: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("finally")

    request = Peer().call(OpenExchanges(app))
    await asyncio.sleep(0.01)
    request.cancel()
    await asyncio.wait({request}, timeout=5)
    assert request.cancelled()
    assert log == ["finally"]


async def streaming_app_that_reads_its_body(scope: Scope, receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] == "http.request" and message["more_body"]:
        pass
    if message["type"] == "http.request":
        raise AssertionError("the body never ended")


async def test_after_the_close_new_requests_get_503() -> None:
    exchanges = OpenExchanges(streaming_app([]))
    await exchanges.close(5)
    peer = Peer()
    await peer.call(exchanges)
    assert peer.status == 503
    assert (b"retry-after", b"2") in peer.sent[0]["headers"]


async def test_a_cancel_by_the_application_itself_is_not_taken_for_a_disconnect() -> None:
    log: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        listening = asyncio.create_task(_listen(receive))
        await asyncio.sleep(0.01)
        listening.cancel()
        exchanges.begin_draining()
        closing = asyncio.create_task(exchanges.close(5))
        await asyncio.wait({listening})
        log.append("cancelled" if listening.cancelled() else listening.result())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        done.append(closing)

    done: list[asyncio.Task[None]] = []
    exchanges = OpenExchanges(app)
    await Peer().call(exchanges)
    await done[0]
    assert log == ["cancelled"]


async def test_a_real_stream_view_runs_its_finally_at_the_close(lanes: LaneHandler) -> None:
    exchanges = OpenExchanges(lanes)
    ended = probe.counts.ended
    peer = Peer()
    request = peer.call(exchanges, "/idle")
    await peer.has_body.wait()
    await exchanges.close(5)
    await request
    assert [message["body"] for message in peer.sent[1:]] == [b": connected\n\n", b""]
    assert probe.counts.ended == ended + 1


# ── bodies ────────────────────────────────────────────────────────────────────────────────────


async def test_a_body_of_exactly_the_limit_passes(lanes: LaneHandler) -> None:
    async with client(BodyLimit(lanes, Bounds(limit=1000))) as http:
        assert (await http.post("/length", content=b"x" * 1000)).json() == {"length": 1000}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_longer_body_gets_413_declared_or_not(lanes: LaneHandler, chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 100

    content = chunks() if chunked else b"x" * 1100
    async with client(BodyLimit(lanes, Bounds(limit=1000))) as http:
        answer = await http.post("/length", content=content)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"
    assert "1000" in answer.json()["error"]["message"]


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    more = {"type": "http.request", "body": b"x" * 1000, "more_body": True}
    peer = Peer(*[more] * 100)
    await peer.call(BodyLimit(streaming_app_that_reads_its_body, Bounds(limit=1000)))
    assert peer.status == 413
    assert peer.inbox.qsize() > 80


async def test_a_body_of_absurd_length_is_refused_before_it_is_read() -> None:
    peer = Peer({"type": "http.request", "body": b"x", "more_body": True})
    scope = {**SCOPE, "headers": [(b"content-length", b"9" * 20)]}
    async with asyncio.timeout(5):
        await BodyLimit(answer_ok, Bounds(limit=1000))(scope, peer.receive, peer.send)
    assert peer.status == 413
    assert peer.inbox.qsize() == 1


async def test_who_stops_sending_in_the_middle_of_a_long_body_gets_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streaming.asgi.body.DISCARD_SECONDS", 0.05)
    peer = Peer({"type": "http.request", "body": b"x" * 1500, "more_body": True})
    async with asyncio.timeout(5):
        await peer.call(BodyLimit(streaming_app_that_reads_its_body, Bounds(limit=1000)))
    assert peer.status == 413


# ── lifetime ──────────────────────────────────────────────────────────────────────────────────

tag: ContextVar[str] = ContextVar("tag", default="none")


class Background:
    def __init__(self, error: Exception | None = None) -> None:
        self.log: list[str] = []
        self.error = error

    async def start(self) -> None:
        await asyncio.sleep(0.01)
        if self.error:
            raise self.error
        self.log.append(f"started in context {tag.get()}")

    async def stop(self) -> None:
        self.log.append("stopped")

    def around(self, app: App) -> Lifetime:
        announce = self.log.append
        return Lifetime(
            app, start=self.start, stop=self.stop, stopping=lambda: announce("stopping")
        )


async def answer_ok(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


async def test_the_first_requests_wait_for_one_start_in_a_context_of_its_own() -> None:
    background = Background()
    app = background.around(answer_ok)
    tag.set("a request's")
    peers = [Peer() for _ in range(3)]
    await asyncio.gather(*(peer.call(app) for peer in peers))
    assert background.log == ["started in context none"]
    assert [peer.status for peer in peers] == [200, 200, 200]


async def test_stopping_is_announced_at_once_and_happens_once() -> None:
    background = Background()
    app = background.around(answer_ok)
    assert app.begin_stop() is None
    await app.ensure_started()
    stopping = app.begin_stop()
    assert background.log[-1] == "stopping"
    assert app.begin_stop() is stopping
    assert stopping is not None
    await stopping
    assert background.log[-2:] == ["stopping", "stopped"]


async def test_lifespan_starts_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    background = Background()
    app = background.around(answer_ok)
    monkeypatch.setattr(app, "_overhear_signals", lambda: None)  # the test's process keeps its own
    peer = Peer({"type": "lifespan.startup"}, {"type": "lifespan.shutdown"})
    await app({"type": "lifespan"}, peer.receive, peer.send)
    assert [message["type"] for message in peer.sent] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    assert background.log == ["started in context none", "stopping", "stopped"]


async def test_a_refused_start_is_told_to_the_server() -> None:
    app = Background(StartError("Somebody else is here.")).around(answer_ok)
    peer = Peer({"type": "lifespan.startup"})
    await app({"type": "lifespan"}, peer.receive, peer.send)
    assert peer.sent == [{"type": "lifespan.startup.failed", "message": "Somebody else is here."}]


async def test_a_websocket_is_closed_politely() -> None:
    peer = Peer({"type": "websocket.connect"})
    await Background().around(answer_ok)({"type": "websocket"}, peer.receive, peer.send)
    assert peer.sent == [{"type": "websocket.close"}]


# ── pressure ──────────────────────────────────────────────────────────────────────────────────


async def test_on_a_server_with_back_pressure_of_its_own_nothing_is_wrapped() -> None:
    seen: list[Send] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(send)

    peer = Peer()
    send = peer.send
    await BackPressure(app)(dict(SCOPE), peer.receive, send)
    assert seen == [send]


class Transport:
    """What the shim reads of Twisted's transport; the test plays the client."""

    def __init__(self) -> None:
        self.dataBuffer, self.offset, self._tempDataLen = b"", 0, 0
        self.cut = False

    def abortConnection(self) -> None:  # noqa: N802 - Twisted's name
        self.cut = True


async def under_daphne(transport: Transport, pressure: Pressure, pieces: int) -> None:
    """Sends pieces of 100 kB the way that Daphne has them sent."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(pieces):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})

    async def reply(protocol: object, message: Message) -> None:
        transport._tempDataLen += len(message["body"])

    protocol = SimpleNamespace(channel=SimpleNamespace(transport=transport))
    await BackPressure(app, pressure)(dict(SCOPE), Peer().receive, partial(reply, protocol))


async def test_a_client_who_takes_nothing_is_cut_when_patience_ends() -> None:
    transport = Transport()
    await under_daphne(transport, Pressure(limit=250_000, patience=0.05, poll=0.01), 3)
    assert transport.cut


async def test_a_client_who_takes_little_by_little_is_waited_for() -> None:
    transport = Transport()
    pressure = Pressure(limit=250_000, patience=0.5, poll=0.01)
    sending = asyncio.create_task(under_daphne(transport, pressure, 5))
    for _ in range(50):
        await asyncio.sleep(0.02)
        assert transport._tempDataLen <= 350_000
        transport._tempDataLen = max(0, transport._tempDataLen - 10_000)
    await sending
    assert not transport.cut
