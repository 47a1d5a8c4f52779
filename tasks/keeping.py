"""Where effects keep what files held before them: a shelf for each task, under `var/undo`.

Bounded in time (`PILOTHOUSE_UNDO_DAYS` after a task last kept something) and in space
(`PILOTHOUSE_UNDO_MB` over all tasks; the longest untouched goes first). A task whose words are erased
or whose events are pruned has no shelf any more.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from agent.shelf import Shelf, size_of
from tasks.conf import conf

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

    def add(self, task_id: UUID, size: int) -> None:
        """Now and then the oldest shelves make room; between two looks the whole may be larger by
        a part of its bound."""
        self._bytes += size
        if self._bytes >= conf().undo_mb * MEGABYTE // LOOK_PART:
            self._bytes = 0
            sweep(spared=task_id)


_growth = _Growth()


def shelf_of(task_id: UUID) -> Shelf | None:
    """None: the settings want nothing kept."""
    limit = conf().undo_mb * MEGABYTE
    if not limit:
        return None
    return Shelf(_home() / str(task_id), limit, partial(_growth.add, task_id))


def forget(task_id: UUID) -> None:
    """Nothing of the task can be taken back any more."""
    shutil.rmtree(_home() / str(task_id), ignore_errors=True)


def sweep(spared: UUID | None = None) -> int:
    """Remove what is too old, then the oldest until the rest fits; how many shelves. For a thread.
    The `spared` task is at work."""
    found = sorted(_shelves())
    left = sum(kept.size for kept in found)
    old = time.time() - conf().undo_days * DAY
    removed = 0
    for kept in found:
        too_much = left > conf().undo_mb * MEGABYTE
        if kept.folder.name != str(spared) and (kept.touched < old or too_much):
            shutil.rmtree(kept.folder, ignore_errors=True)
            left -= kept.size
            removed += 1
    return removed


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
