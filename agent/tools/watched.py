"""Effects whose files nobody can name before: one at a time in a workspace, with a look before and
after, so that what they changed is told and can be taken back, also where they were cut off.

The next one waits until nothing of this one is under way any more, its looks in threads included,
however often whoever waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from agent import manifest
from agent.spool import Spool
from agent.toolbox import ToolContext
from agent.tools import unfinished
from agent.tools.alone import alone
from agent.tools.changes import Report
from agent.tools.files import UNENTERED

WAIT_SECONDS = 60
"""For the effect before this one in the same workspace."""

T = TypeVar("T")


async def watched(context: ToolContext, effect: Callable[[], Awaitable[T]]) -> tuple[T, Report]:
    """Run the effect; what it returns, and what it changed. Raises what it raises, and ToolFailed
    where another one does not end."""
    look = partial(manifest.take, context.workspace, UNENTERED)
    async with alone(context.workspace.root, WAIT_SECONDS), _spooled(context) as spool:
        before = await _to_its_end(partial(look, spool=spool))
        async with _noted(context, before, spool):
            outcome = await effect()
            after = await _to_its_end(partial(look, before))
            report = await _to_its_end(partial(Report, before, after, spool))
        if context.shelf is not None:
            await _to_its_end(partial(unfinished.end, context.shelf, context.call_id, report))
        return outcome, report


async def _to_its_end(work: Callable[[], T]) -> T:
    """In a thread, which nobody can cancel: who is cancelled meanwhile hears it afterwards."""
    working = asyncio.create_task(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return working.result()
    working.exception()  # nobody asks for its outcome any more
    raise cancelled


@asynccontextmanager
async def _spooled(context: ToolContext) -> AsyncIterator[Spool | None]:
    """What files held before the effect, while it runs; None: nothing is to be kept."""
    spool = None if context.shelf is None else Spool(context.shelf)
    try:
        yield spool
    finally:
        if spool is not None:
            await _to_its_end(spool.close)


@asynccontextmanager
async def _noted(
    context: ToolContext, before: manifest.Manifest, spool: Spool | None
) -> AsyncIterator[None]:
    """What was there before is noted while the effect runs. One that is cut off is looked at before
    this is left; where the process dies, by whoever takes the task over."""
    if spool is None:
        yield
        return
    whole = False
    try:
        await _to_its_end(partial(unfinished.begin, context.call_id, before, spool))
        yield
        whole = True
    finally:
        if not whole:
            await _to_its_end(partial(unfinished.settle, context.workspace, spool.shelf))
