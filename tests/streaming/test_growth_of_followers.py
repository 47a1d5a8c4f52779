"""What an open stream costs: neither the request that asked for it, nor the crowd it came with."""

from __future__ import annotations

import asyncio
import gc
import sys
import tracemalloc
from asyncio import FIRST_COMPLETED
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType

import pytest
from asgiref.sync import sync_to_async

from streaming.asgi.body import BodyLimit
from streaming.asgi.exchanges import OpenExchanges
from streaming.asgi.lanes import OPENING, LaneHandler
from streaming.asgi.wire import App, Message, Receive, Scope, Send
from tasks.lane import Lane
from tasks.models import Task
from tests.support.people import House, bearer, make_house
from tests.support.rows import make_task

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("clean_hub")]

FOLLOWERS = 40
KEPT = 16 * 1024
"""Bytes of a silent follower, without what its server keeps of the connection."""
HEADER = 16 * 1024
"""Bytes of a cookie that comes with each request."""


class Counting(LaneHandler):
    """Knows how many requests were inside of Django at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.most = 0

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await super().handle(scope, receive, send)
        finally:
            self.inside -= 1


class Client:
    """Asks for a stream and keeps nothing of what comes."""

    def __init__(self, app: App, path: str, credential: bytes, root: str = "") -> None:
        self.greeted = asyncio.get_running_loop().create_future()
        self._left = asyncio.get_running_loop().create_future()
        self._asked = False
        cookie = b"padding=" + bytes(HEADER).replace(b"\0", b"x")
        headers = [(b"host", b"testserver"), (b"authorization", credential), (b"cookie", cookie)]
        scope = {
            "type": "http",
            "method": "GET",
            "path": root + path,
            "root_path": root,
            "query_string": b"",
            "headers": headers,
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.shield(self._left)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if b"event: connected" in message.get("body", b""):
            self.greeted.set_result(None)

    async def leave(self) -> None:
        self._left.set_result(None)
        await self.task


class Crowd:
    """Opens streams of one running task."""

    def __init__(self, task: Task, credential: bytes) -> None:
        self.handler = Counting()
        self._app = OpenExchanges(BodyLimit(self.handler))
        self._path = f"/api/tasks/{task.pk}/stream"
        self._credential = credential
        self.clients: list[Client] = []

    async def come(self, count: int, root: str = "") -> None:
        clients = [Client(self._app, self._path, self._credential, root) for _ in range(count)]
        self.clients += clients
        async with asyncio.timeout(60):
            for client in clients:
                await asyncio.wait({client.greeted, client.task}, return_when=FIRST_COMPLETED)
        assert all(client.greeted.done() for client in clients)

    def stall(self) -> asyncio.Task[None]:
        """A request for the stream whose body never ends."""
        begun = False

        async def receive() -> Message:
            nonlocal begun
            if begun:
                await asyncio.Event().wait()
            begun = True
            return {"type": "http.request", "body": b"{", "more_body": True}

        async def request() -> None:
            scope = {"type": "http", "method": "POST", "path": self._path, "headers": []}
            await self.handler({**scope, "query_string": b""}, receive, _ignore)

        return asyncio.create_task(request())


async def _ignore(message: Message) -> None:
    pass


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


@pytest.fixture
async def crowd(house: House) -> AsyncIterator[Crowd]:
    task = await sync_to_async(make_task)(house.session, status=Task.Status.RUNNING)
    header = await sync_to_async(bearer)(house.alice)
    crowd = Crowd(task, header["Authorization"].encode())
    yield crowd
    await asyncio.gather(*(client.leave() for client in crowd.clients))
    await crowd.handler.close(5)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def allocated() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.usefixtures("traced")
async def test_an_open_stream_keeps_nothing_of_its_request(crowd: Crowd) -> None:
    await crowd.come(10)  # what is made once is made
    before = allocated()
    await crowd.come(FOLLOWERS)
    assert allocated() - before < FOLLOWERS * KEPT


async def test_of_a_crowd_that_comes_at_once_a_few_are_inside_of_django(crowd: Crowd) -> None:
    await crowd.come(5 * OPENING)
    assert crowd.handler.most == OPENING


async def test_who_sends_no_end_of_a_body_keeps_nobody_from_a_stream(crowd: Crowd) -> None:
    stalled = [crowd.stall() for _ in range(OPENING)]
    try:
        async with asyncio.timeout(10):
            await crowd.come(1)
    finally:
        for request in stalled:
            request.cancel()
        await asyncio.wait(stalled)


async def test_a_stream_whose_path_has_a_prefix_is_sent_as_well(crowd: Crowd) -> None:
    await crowd.come(1, root="/somewhere")


async def test_opening_a_stream_takes_one_hop_to_a_thread(crowd: Crowd) -> None:
    """Who asks, for what, and where it stands."""
    hops = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal hops
        hops += event == "call" and frame.f_code is Lane.ask.__code__

    await crowd.come(1)
    sys.setprofile(note)
    try:
        await crowd.come(10)
    finally:
        sys.setprofile(None)
    assert hops == 10
