from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tasks.hub import hub


@pytest.fixture
async def clean_hub() -> AsyncIterator[None]:
    """The process's hub on this test's loop; nobody may be left behind in it."""
    hub.attach(asyncio.get_running_loop())
    yield
    hub.detach()
    assert hub.is_empty()
