"""The provider's client, and servers of both kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.providers.client import Pool, make_client
from tests.support.provider_server import ProviderServer
from tests.support.stub import StubServer


@pytest.fixture
async def client() -> AsyncIterator[Pool]:
    async with make_client() as client:
        yield client


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    async with StubServer() as stub:
        yield stub
