"""An effect that is watched has the workspace for itself until its last look is over."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from agent.beneath import Opener, best_opener
from agent.errors import ToolFailed
from agent.shelf import Shelf
from agent.toolbox import ToolContext
from agent.tools import unfinished
from agent.tools.alone import alone_now
from agent.tools.watched import watched
from agent.workspace import Workspace

CANCELS = 3


class Gate:
    """A way to open files that can be held up, as a slow disk does."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.passable = threading.Event()
        self.passable.set()

    def __call__(self, root: int, path: str, flags: int, /, *, links: bool = True) -> int:
        if not self.passable.is_set():
            self.reached.set()
            self.passable.wait()
        return best_opener()(root, path, flags, links=links)


class Desk:
    def __init__(self, home: Path) -> None:
        self.root = home / "ws"
        self.root.mkdir()
        (self.root / "a.txt").write_text("one\n")
        self.gate = Gate()
        opener: Opener = self.gate
        self.context = ToolContext(
            workspace=Workspace(self.root, opener),
            shelf=Shelf(home / "kept", 2**26),
            call_id="c1",
        )

    def is_free(self) -> bool:
        try:
            with alone_now(self.root):
                return True
        except ToolFailed:
            return False

    async def cancelled(self, effect: Callable[[], Awaitable[None]]) -> list[bool]:
        """Cancelled as soon as a look is held up, and again; whether the workspace was free behind
        each, and at the end."""
        running = asyncio.create_task(watched(self.context, effect))
        await asyncio.to_thread(self.gate.reached.wait)
        free = []
        for _ in range(CANCELS):
            running.cancel()
            await asyncio.wait({running}, timeout=0.05)
            free.append(self.is_free())
        self.gate.passable.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        return [*free, self.is_free()]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


STILL_LOOKED_AT = [*[False] * CANCELS, True]


async def test_more_cancels_during_the_last_look_do_not_let_the_next_one_in(desk: Desk) -> None:
    async def effect() -> None:
        (desk.root / "a.txt").write_text("two\n")
        desk.gate.passable.clear()
        raise ToolFailed("cut off")

    assert await desk.cancelled(effect) == STILL_LOOKED_AT
    told = unfinished.told(desk.context.shelf, "c1") if desk.context.shelf else None
    assert told is not None
    assert [each["path"] for each in told.details["changes"]] == ["a.txt"]


async def test_nor_do_those_during_the_first_look(desk: Desk) -> None:
    async def effect() -> None:
        pytest.fail("it was cancelled before")

    desk.gate.passable.clear()
    assert await desk.cancelled(effect) == STILL_LOOKED_AT
    assert desk.context.shelf is not None
    assert desk.context.shelf.left(unfinished.BEGUN) is None


async def test_nor_those_behind_an_effect_that_came_to_its_end(desk: Desk) -> None:
    async def effect() -> None:
        (desk.root / "a.txt").write_text("two\n")
        desk.gate.passable.clear()

    assert await desk.cancelled(effect) == STILL_LOOKED_AT
    assert desk.context.shelf is not None
    assert unfinished.told(desk.context.shelf, "c1") is not None
