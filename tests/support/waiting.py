"""Waiting for what rings no bell: files, processes, what another process stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 40
"""Seconds that a test waits for what must come; generous, because machines are busy."""


async def happened(condition: Callable[[], object]) -> None:
    """Waits until it is so."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.02)
