"""How a run is told from outside to stop, whatever it is waiting for just then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, TypeVar

T = TypeVar("T")


class Stop(Enum):
    """Why a run is told to stop."""

    CANCEL = "cancel"  # a person wants the task to end
    SHUTDOWN = "shutdown"  # this process ends; another run continues
    LOST = "lost"  # another run owns the task


class CancelledWithin(Exception):
    """Something that the work waited for was cancelled, though nobody wants the end of the run."""


class Stopping:
    """Ends the work of a run. It does not hold the run, whose journal holds it."""

    def __init__(self) -> None:
        self.why: Stop | None = None
        self._work: asyncio.Task[Any] | None = None
        self._cancelled = False
        """The work was, by us."""

    def __call__(self, why: Stop) -> None:
        """The first reason counts."""
        if self.why is None:
            self.why = why
            # Whoever learns it while working raises what ends the work, and is not cut off.
            if self._work is not None and self._work is not asyncio.current_task():
                self._cancelled = self._work.cancel()

    async def during(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What the work gives; None: it was stopped. It is done here, since a task of its own, waited
        for beside the stop, would cost each run two waits and two turns of the loop. Raises what the
        work raises, and CancelledWithin."""
        self._work = doing = asyncio.current_task()
        assert doing is not None
        try:
            return await work()
        except asyncio.CancelledError as error:
            if doing.cancelling() > self._cancelled:
                raise  # somebody wants the end of us, too
            if self.why is None:
                raise CancelledWithin(*error.args) from error
            return None
        finally:
            self._work = None
            if self._cancelled:  # it is over, whether or not the work took notice
                doing.uncancel()
