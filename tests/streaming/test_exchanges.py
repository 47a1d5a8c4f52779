"""What is under way at the edge, shim by shim: ends, leavers, closes and bodies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from streaming.asgi.body import BodyLimit, Bounds
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import LaneHandler
from streaming.asgi.wire import App, Receive, Scope, Send
from tests.support import probe
from tests.support.peer import REQUEST, SCOPE, Peer, answer_ok, client


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
