"""Where effects keep what files held before them: a shelf for each task, under `var/undo`.

Bounded in time (`PILOTHOUSE_UNDO_DAYS` after a task last kept something) and in space
(`PILOTHOUSE_UNDO_MB` over all tasks; the longest untouched goes first, but none of a task that is
running). A task whose words are erased or whose events are pruned has no shelf any more.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from django.db import Error as DatabaseErrors
from django.db import connection

from agent.errors import ToolFailed
from agent.shelf import Shelf, size_of
from agent.tools import unfinished
from agent.tools.alone import alone_now
from agent.workspace import Workspace
from tasks.conf import conf
from tasks.models import Task

MEGABYTE = 1024 * 1024
DAY = 24 * 3600
LOOK_PART = 16
"""The whole is looked at when it may have grown by this part of its bound."""

logger = logging.getLogger(__name__)


class _Kept(NamedTuple):
    touched: float
    size: int
    folder: Path


class _Growth:
    """What this process has added since it last looked at the whole."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, size: int) -> None:
        """Now and then the oldest shelves make room; between two looks the whole may be larger by
        a part of its bound. No call fails because of it."""
        self._bytes += size
        if self._bytes >= conf().undo_mb * MEGABYTE // LOOK_PART:
            self._bytes = 0
            try:
                sweep()
            except DatabaseErrors as trouble:
                logger.error("What is kept for undoing could not make room: %s", trouble)


_growth = _Growth()


def shelf_of(task_id: UUID) -> Shelf | None:
    """None: the settings want nothing kept."""
    limit = conf().undo_mb * MEGABYTE
    if not limit:
        return None
    return Shelf(_home() / str(task_id), limit, _growth.add)


class Unfinished(Exception):
    """A call of the task was cut off, and nobody has looked yet what it did: `settle` does."""


def need_settled(task_id: UUID) -> None:
    """Command: raises Unfinished. To look takes too long for the writer's thread."""
    if (_home() / str(task_id) / unfinished.BEGUN).exists():
        raise Unfinished


def settle(task_id: UUID) -> None:
    """Look what the call did that was cut off. Not while a command runs there: then it may well be
    that one. For a thread."""
    shelf = shelf_of(task_id)
    root = Task.objects.values_list("workspace__root", flat=True).get(pk=task_id)
    with suppress(ToolFailed), alone_now(Path(root)):
        if shelf is not None:
            unfinished.settle(Workspace(Path(root)), shelf)


def traces_of(task_id: UUID, call_id: str) -> dict[str, Any]:
    """What is known of a call without a result, as details of the one that it gets."""
    shelf = shelf_of(task_id)
    told = None if shelf is None else unfinished.told(shelf, call_id)
    return {} if told is None else told.details


def forget(task_id: UUID) -> None:
    """Nothing of the task can be taken back any more."""
    shutil.rmtree(_home() / str(task_id), ignore_errors=True)


def sweep() -> int:
    """Remove what is too old, then the oldest until the rest fits; how many shelves. For a thread.
    Spares tasks that are running, in whatever process."""
    found = sorted(_shelves())
    spared = _running() if found else frozenset()  # second: whoever began meanwhile is among them
    left = sum(kept.size for kept in found)
    old = time.time() - conf().undo_days * DAY
    removed = 0
    for kept in found:
        too_much = left > conf().undo_mb * MEGABYTE
        if kept.folder.name not in spared and (kept.touched < old or too_much):
            shutil.rmtree(kept.folder, ignore_errors=True)
            left -= kept.size
            removed += 1
    return removed


def _running() -> frozenset[str]:
    running = Task.objects.filter(status=Task.Status.RUNNING).values_list("pk", flat=True)
    mine = connection.connection is None  # a thread of a tool's has no other use for one
    try:
        return frozenset(map(str, running))
    finally:
        if mine:
            connection.close()


def _shelves() -> list[_Kept]:
    found = []
    with suppress(FileNotFoundError), os.scandir(_home()) as folders:
        for entry in folders:
            with suppress(OSError):  # gone meanwhile
                folder = Path(entry.path)
                found.append(_Kept(entry.stat().st_mtime, size_of(folder), folder))
    return found


def _home() -> Path:
    return conf().var_dir / "undo"
