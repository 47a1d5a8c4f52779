"""What a call did that did not come to its end: cancelled, out of time, or its process died.

Before an effect begins, what is needed to tell is noted on the shelf of its task. A call that ends
well takes the note away. Else whoever finds it looks at the files, once: from then on what the call
did is told, like the result of one that ended, and can be taken back. One call at a time for a task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from agent.errors import AgentError
from agent.manifest import (
    MAX_SHOWN_BYTES,
    MAX_SHOWN_TOGETHER,
    File,
    Manifest,
    Stamp,
    take,
)
from agent.shelf import Shelf
from agent.spool import Place, Spool
from agent.text import clean_json
from agent.tools.changes import Report
from agent.tools.files import UNENTERED
from agent.workspace import Workspace

BEGUN, TOLD = "begun", "told"
"""The notes: before it, and afterwards."""

logger = logging.getLogger(__name__)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What a call did that has no result of its own."""

    call_id: str
    details: dict[str, Any]
    """As in its result."""
    lines: list[str] = []
    """For the model, and for whoever decides what becomes of it."""


Note = TypeVar("Note", bound=msgspec.Struct)


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: bytes
    """As the file system has it: not every name is text."""
    stamp: Stamp
    sha256: str
    mode: int
    opened: bool


class _Begun(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    files: list[_File]
    directories: list[bytes]
    complete: bool
    taken: int
    places: dict[str, Place]


def begin(call_id: str, before: Manifest, spool: Spool) -> None:
    """A command begins; the spool has what files hold now. The result of the call before is stored."""
    spool.shelf.drop(TOLD)
    files = [
        _File(
            path=os.fsencode(path),
            stamp=file.stamp,
            sha256=file.sha256,
            mode=file.mode,
            opened=file.opened,
        )
        for path, file in before.files.items()
    ]
    note = _Begun(
        call_id=call_id,
        files=files,
        directories=sorted(map(os.fsencode, before.directories)),
        complete=before.complete,
        taken=before.taken,
        places=spool.places(),
    )
    spool.shelf.leave(BEGUN, msgspec.json.encode(note))


def end(shelf: Shelf, call_id: str, report: Report) -> None:
    """It has come to its end. What it did is told as long as its result may not be stored yet."""
    if report.changed:
        tell(shelf, call_id, report.details(), report.lines())
    shelf.drop(BEGUN)
    shelf.tidy()


def tell(shelf: Shelf, call_id: str, details: dict[str, Any], lines: Iterable[str] = ()) -> None:
    """What is known of a call, should it have no result."""
    told = Told(call_id=call_id, details=clean_json(details), lines=list(lines))
    shelf.leave(TOLD, msgspec.json.encode(told))


def told(shelf: Shelf, call_id: str) -> Told | None:
    found = _read(shelf, TOLD, Told)
    return found if found is not None and found.call_id == call_id else None


def settle(workspace: Workspace, shelf: Shelf) -> None:
    """Look what a command did that was cut off, if there is one. Nobody else may change the
    workspace by a command meanwhile."""
    begun = _read(shelf, BEGUN, _Begun)
    if begun is None:
        return
    spool = Spool.left(shelf, begun.places)
    try:
        before = _manifest(begun, spool)
        report = Report(before, take(workspace, UNENTERED, before), spool)
        if report.changed:
            tell(shelf, begun.call_id, report.details(), report.lines())
    except (AgentError, OSError) as trouble:  # the workspace is gone
        logger.error("What a command did that was cut off cannot be told: %s", trouble)
    finally:
        shelf.drop(BEGUN)
        spool.close()


def _read(shelf: Shelf, name: str, kind: type[Note]) -> Note | None:
    """A note; None: there is none, or it was damaged."""
    note = shelf.left(name)
    try:
        return None if note is None else msgspec.json.decode(note, type=kind)
    except msgspec.DecodeError as trouble:
        logger.error("What is noted of a call cannot be read: %s", trouble)
        shelf.drop(name)
        return None


def _manifest(begun: _Begun, spool: Spool) -> Manifest:
    room, files = MAX_SHOWN_TOGETHER, {}
    for file in begun.files:
        shown = bool(file.sha256) and file.stamp.size <= min(MAX_SHOWN_BYTES, room)
        data = spool.read(file.sha256) if shown else None
        room -= 0 if data is None else len(data)
        files[os.fsdecode(file.path)] = File(
            stamp=file.stamp, sha256=file.sha256, data=data, mode=file.mode, opened=file.opened
        )
    return Manifest(
        files=files,
        directories=frozenset(map(os.fsdecode, begun.directories)),
        complete=begun.complete,
        taken=begun.taken,
    )
