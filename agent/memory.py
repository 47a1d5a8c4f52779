"""What earlier runs noted for later ones: `memory/MEMORY.md`, and notes of a day beside it.

1. The agent changes it by `memory_write` only, each time with a person's yes; people edit the files.
2. It is bounded: what a write may leave in a file, and what the prompt shows of all of them.
3. It is data. Whoever wrote it, nothing in it is a rule or a permission.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from agent.errors import PathRefused
from agent.text import clean, cut, mark_untrusted
from agent.workspace import Workspace

FOLDER = "memory"
MAIN = "memory/MEMORY.md"
PATHS = r"^memory/(MEMORY|\d{4}-\d{2}-\d{2})\.md$"
"""Where memory lies: the main file, and notes of a day."""
MAX_FILE_BYTES = 8 * 1024
"""What a write may leave in one file."""
MAX_PROMPT_BYTES = 8 * 1024
"""What the prompt shows of all of them."""
MAX_NOTES = 32
"""Notes that are looked at for the prompt, the newest ones."""
MAX_LISTED = 10_000

Permits = Callable[[str], bool]
"""Whether a path of the workspace may be read unasked."""

_PATH = re.compile(PATHS)
_LEFT_OUT = "[What is older is left out here; read_file shows it.]"


def is_memory(path: str) -> bool:
    """Whether a path, links resolved, is a file of memory."""
    return _PATH.fullmatch(path) is not None


def remembered(workspace: Workspace, permits: Permits = lambda path: True) -> str:
    """Memory as the prompt shows it, marked as data: the main file, then notes of the newest days in
    their order. Of too much the newest is kept: the ends of files, the last notes. A file that the
    policy does not permit to be read unasked is not looked at. Empty: there is none. Reads files:
    not for the event loop."""
    found = workspace.unlinked()
    try:
        notes = _notes(found, permits)
    except (PathRefused, OSError):
        return ""  # there is no memory, or it is closed to us
    room = MAX_PROMPT_BYTES - min(sum(map(len, notes)), MAX_PROMPT_BYTES // 2)
    main = _end_of(found, MAIN, room) if permits(MAIN) else b""
    room = MAX_PROMPT_BYTES - len(main)
    kept: list[bytes] = []
    for note in reversed(notes):
        room -= len(note)
        if room < 0:
            break
        kept.insert(0, note)
    shown = [part.decode("utf-8", "replace") for part in (main, *kept) if part]
    if len(kept) < len(notes):
        shown.append(_LEFT_OUT)
    return mark_untrusted(clean("\n\n".join(shown)), FOLDER) if shown else ""


def _notes(workspace: Workspace, permits: Permits) -> list[bytes]:
    """Notes of the newest days, the oldest of them first."""
    names = workspace.page(FOLDER, limit=MAX_LISTED).entries
    days = sorted(each.path for each in names if is_memory(each.path) and each.path != MAIN)
    days = [path for path in days if permits(path)]
    ends = (_end_of(workspace, path, MAX_PROMPT_BYTES // 2) for path in days[-MAX_NOTES:])
    return [end for end in ends if end]


def _end_of(workspace: Workspace, path: str, most: int) -> bytes:
    """The last lines of a file under its name; empty when there is none."""
    try:
        with workspace.open_read(path) as source:
            size = os.fstat(source.fileno()).st_size
            source.seek(max(0, size - most))
            data = source.read(most)
    except (PathRefused, OSError):
        return b""
    left_out = size > most
    head = f"{path}:\n{_LEFT_OUT if left_out else ''}".strip().encode() + b"\n"
    if left_out:
        data = data[len(head) :]
        data = data[data.find(b"\n") + 1 :]  # a line that was cut says something else
    text = data.strip()
    return head + text if text else b""


def too_large(path: str, size: int) -> str:
    """Why a write is refused, and what to do."""
    return (
        f"{cut(path, 100)} would have {size:,} bytes and may have {MAX_FILE_BYTES:,}. Nothing was "
        "written. Rewrite it shorter with mode replace: keep what later runs need."
    )
