"""Which worker runs what, when tests run side by side.

A file stays on one worker, and so does a folder whose tests share a server. The long ones come
first, so that no worker is left alone with them at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

FIRST = (
    "tests/browser/",
    "tests/e2e/",
    "tests/streaming/",
    "tests/tasks/test_growth_of_tables.py",
    "tests/tasks/test_load.py",
    "tests/tasks/test_roles.py",
    "tests/agent/test_any_run.py",
)
TOGETHER = ("tests/browser", "tests/e2e")


def in_order(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _place(item.nodeid))


def _place(nodeid: str) -> int:
    places = (place for place, first in enumerate(FIRST) if nodeid.startswith(first))
    return next(places, len(FIRST))


class Spread(LoadFileScheduling):  # type: ignore[misc]  # xdist's schedulers have no types
    """Hands out files and folders in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        folders = (folder for folder in TOGETHER if nodeid.startswith(f"{folder}/"))
        return next(folders, nodeid.partition("::")[0])
