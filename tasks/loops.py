"""From a thread to event loops: what is to be called there, gathered so that a loop is woken once.

Waking a loop is a write to its pipe, a turn of it and a read. What a batch of commands leaves for
it, bells and submitters, is one call.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence

Call = Callable[[], None]

logger = logging.getLogger(__name__)

_own = threading.local()
"""Of a thread that gathers: what waits for `take()`."""


def on_loop(loop: asyncio.AbstractEventLoop, call: Call) -> None:
    """Let the loop call this soon, in order; in a thread that gathers, when it is taken."""
    waiting: list[tuple[asyncio.AbstractEventLoop, Call]] | None = vars(_own).get("waiting")
    if waiting is None:
        call_all(loop, [call])
    else:
        waiting.append((loop, call))


def gather() -> None:
    """From here on this thread gathers: it must `take()` whenever it comes to an end of its work."""
    _own.waiting = []


def take() -> list[tuple[asyncio.AbstractEventLoop, Call]]:
    """What was gathered in this thread, in order; it is the caller's to hand on."""
    waiting: list[tuple[asyncio.AbstractEventLoop, Call]] = vars(_own).get("waiting", [])
    taken = waiting.copy()
    waiting.clear()
    return taken


def call_all(loop: asyncio.AbstractEventLoop, calls: Sequence[Call]) -> None:
    """Wake the loop for these; when it is closed nobody waits."""
    try:
        loop.call_soon_threadsafe(_run_all, calls)
    except RuntimeError:
        logger.debug("The loop of %d calls is closed: nobody waits.", len(calls))


def _run_all(calls: Sequence[Call]) -> None:
    for call in calls:
        try:
            call()
        except Exception:  # a bell that breaks must not keep those behind it waiting
            logger.exception("What a thread left for the event loop broke.")
