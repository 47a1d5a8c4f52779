"""A workspace for commands, of which nothing may be left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.beneath import open_root
from agent.processes import use_of
from tests.support.shell import Desk, descriptors


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return Desk(folder)


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No descriptor and no process is left, whatever a test did."""
    os.close(open_root(Path.cwd()))  # what the process opens once and keeps
    before, running = descriptors(), use_of(os.getpid()).processes
    yield
    for _ in range(100):
        if descriptors() <= before and use_of(os.getpid()).processes <= running:
            return
        await asyncio.sleep(0.05)
    assert descriptors() <= before  # fewer: the test before this one had not let go of all
    assert use_of(os.getpid()).processes <= running
