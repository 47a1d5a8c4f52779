from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from streaming.asgi.lanes import LaneHandler
from tasks.hub import Hub, hub
from tests.streaming.world import Run, World, call_started, started
from tests.support import probe
from tests.support.agui import Post, Visit, run_input
from tests.support.people import bearer
from tests.support.runs import House


@pytest.fixture
async def clean_hub() -> AsyncIterator[None]:
    """The process's hub on this test's loop; nobody may be left behind in it."""
    hub.attach(asyncio.get_running_loop())
    yield
    hub.detach()
    assert hub.is_empty()


@pytest.fixture
async def post(house: House) -> AsyncIterator[Post]:
    """`post("thread", "run", "What is to be done?", **fields)` to /agui as Alice, or with other
    `headers`; whoever is still there at the end leaves."""
    app = LaneHandler()
    token = await sync_to_async(bearer)(house.alice)
    visits: list[Visit] = []

    def post(thread: str, run: str, *messages: Any, headers: Any = None, **more: Any) -> Visit:
        body = json.dumps(run_input(thread, run, *messages, **more)).encode()
        visits.append(Visit(app, "/agui", body, token if headers is None else headers))
        return visits[-1]

    yield post
    await asyncio.gather(*(visit.leave() for visit in visits))
    await app.close(5)


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


@pytest.fixture
def own() -> Hub:
    """A hub of its own, in which a run is active."""
    own = Hub()
    own.running("t", "s", 0, 0)
    return own


@pytest.fixture
def run() -> Run:
    """A task whose first call of the model has begun."""
    run = World().task()
    run.begin()
    run.commit(started(), call_started())
    return run
