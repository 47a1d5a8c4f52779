"""The edge's start and stop, and its patience with clients who do not read."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace

import pytest

from streaming.asgi.lifetime import Lifetime, StartError
from streaming.asgi.pressure import BackPressure, Pressure
from streaming.asgi.wire import App, Message, Receive, Scope, Send
from tests.support.peer import SCOPE, Peer, answer_ok

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
