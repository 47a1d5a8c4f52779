"""Streams that a test opens, in a house with one running task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from streaming.asgi.lanes import LaneHandler
from tasks.conf import conf
from tasks.models import Task
from tasks.writer import writer
from tests.support.people import House, bearer, make_house
from tests.support.rows import make_task
from tests.support.watching import HEARTBEAT, Open, Watched


@pytest.fixture
async def open_(house: House) -> AsyncIterator[Open]:
    """`open_(path, user=…, last_event_id=…)`; whatever is open at the end leaves."""
    app = LaneHandler()
    opened: list[Watched] = []
    tokens = {
        user.username: await sync_to_async(bearer)(user) for user in (house.alice, house.charlie)
    }

    def open_(path: str, *, user: str = "alice", method: str = "GET", **headers: str) -> Watched:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        exchange = Watched(app, path, tokens.get(user, {}) | named, method)
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
