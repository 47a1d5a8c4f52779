"""Every test of this folder runs on both kinds of event loops that servers run on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from agent.providers.connections import Connections


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def pool() -> AsyncIterator[Connections]:
    pool = Connections(ssl.create_default_context())
    yield pool
    await pool.aclose()
