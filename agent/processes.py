"""What a process and its descendants use: read from /proc, nothing where there is none."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Use(NamedTuple):
    """Of a whole tree of processes."""

    processes: int
    memory: int
    """Bytes that are resident, shared pages counted for each."""


def use_of(pid: int) -> Use:
    """What `pid` and everything below it use now."""
    memory: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _entries():
        found = _stat(entry)
        if found is not None:
            parent, memory[entry] = found
            children[parent].append(entry)
    tree, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        tree.append(one)
        waiting += children.get(one, ())
    return Use(
        processes=sum(one in memory for one in tree), memory=sum(memory.get(one, 0) for one in tree)
    )


def _entries() -> list[int]:
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except FileNotFoundError:
        return []


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and resident bytes. The name in the middle may hold anything, so count from its end."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1]), int(fields[21]) * _PAGE
