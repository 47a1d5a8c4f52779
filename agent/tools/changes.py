"""What an effect did to the files of a workspace, told to the model and to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agent.errors import PathRefused
from agent.manifest import MAX_SHOWN_BYTES, Change, File, Manifest, changes
from agent.spool import Spool
from agent.text import cut
from agent.tools.diffs import unified
from agent.tools.texts import decode
from agent.undo import Fate, State, keep_changes
from agent.workspace import Workspace

MAX_NAMED = 100
"""Files named to the model."""
MAX_TOLD = 10 * 1024
"""Characters of the list of changes as JSON."""
MAX_PATHS = 4 * 1024
MAX_DIFF = 12 * 1024
"""Characters of all diffs together."""


class Report:
    """The difference of two manifests. With the spool that has the first one's contents, it can be
    taken back."""

    def __init__(self, before: Manifest, after: Manifest, spool: Spool | None = None) -> None:
        self._changes = changes(before, after)
        self._complete = before.complete and after.complete
        self._undo = None if spool is None else keep_changes(spool, before, after)

    @property
    def changed(self) -> bool:
        return bool(self._changes)

    def lines(self) -> Iterator[str]:
        """For the model."""
        if not self._changes:
            return
        yield "\n[Changed files:"
        for change in self._changes[:MAX_NAMED]:
            size = f", {change.after.stamp.size:,} bytes" if change.after else ""
            yield f"  {change.kind} {_shown(change.path)}{size}"
        if len(self._changes) > MAX_NAMED:
            yield f"  and {len(self._changes) - MAX_NAMED:,} more"
        yield "]"

    def details(self) -> dict[str, Any]:
        """For people and the audit trail."""
        made = (each.path for each in self._changes if each.after and each.after.sha256)
        undo = {} if self._undo is None else {"undo": self._undo}
        return {
            "changed": len(self._changes),
            "changes": _fitting((each.told() for each in self._changes), MAX_TOLD),
            "manifest_complete": self._complete,
            "artifacts": _fitting(made, MAX_PATHS),
            "diff": cut("".join(map(_diff, self._changes[:MAX_NAMED])), MAX_DIFF, _CUT),
            **undo,
        }


_CUT = "\n[… the diff is cut here …]\n"


def _fitting(items: Iterable[Any], room: int) -> list[Any]:
    """As many of the first ones as there is room for."""
    kept = []
    for item in items:
        room -= len(json.dumps(item))
        if room < 0:
            break
        kept.append(item)
    return kept


def _shown(path: str) -> str:
    """A name that cannot break a line or hide a part of itself."""
    return path if path.isprintable() else ascii(path)


def _diff(change: Change) -> str:
    """Of a text file; of anything else its name, the digests stand in the list of changes."""
    old = b"" if change.before is None else change.before.data
    new = b"" if change.after is None else change.after.data
    before = None if old is None else decode(old)
    after = None if new is None else decode(new)
    path = _shown(change.path)
    if before is None or after is None:
        return f"{change.kind}: {path} (not text, or large)\n"
    modes = _modes(path, change.before, change.after)
    return modes + unified(path, before.text if change.before else None, after.text)


def _modes(path: str, before: File | State | None, after: File | State | None) -> str:
    if before is None or after is None or before.mode == after.mode:
        return ""
    return f"{path}: permissions {before.mode:03o} become {after.mode:03o}\n"


# ── taking it back ────────────────────────────────────────────────────────────────────────────


def back(fate: Fate, workspace: Workspace) -> str:
    """What taking back would change in a file that is as the call left it: a diff of small text,
    sizes of anything else."""
    piece = fate.piece
    path = _shown(piece.path)
    modes = _modes(path, piece.after, piece.before)
    now = _now(piece.after, piece.path, workspace)
    then = b"" if piece.before is None else fate.data
    if then is None or now is None or max(len(then), len(now)) > MAX_SHOWN_BYTES:
        return modes + _sizes(piece.after, piece.before)
    old, new = decode(now), decode(then)
    if old is None or new is None:
        return modes + _sizes(piece.after, piece.before)
    return modes + unified(path, old.text if piece.after else None, new.text)


def _now(after: State | None, path: str, workspace: Workspace) -> bytes | None:
    if after is None:
        return b""
    try:
        return workspace.read_bytes(path, MAX_SHOWN_BYTES + 1)
    except (PathRefused, OSError):
        return None  # gone since it was looked at: carrying it out will find that


def _sizes(now: State | None, then: State | None) -> str:
    said = ((name, state) for name, state in (("now", now), ("then", then)) if state is not None)
    return "".join(f"{name}: {state.size:,} bytes, sha256 {state.sha256}\n" for name, state in said)
