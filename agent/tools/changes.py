"""What an effect did to the files of a workspace, told to the model and to people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from agent.manifest import Change, Manifest, changes
from agent.text import cut
from agent.tools.diffs import unified
from agent.tools.texts import decode

MAX_NAMED = 100
"""Files named to the model."""
MAX_TOLD = 10 * 1024
"""Characters of the list of changes as JSON."""
MAX_PATHS = 4 * 1024
MAX_DIFF = 12 * 1024
"""Characters of all diffs together."""


class Report:
    """The difference of two manifests."""

    def __init__(self, before: Manifest, after: Manifest) -> None:
        self._changes = changes(before, after)
        self._complete = before.complete and after.complete

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
        return {
            "changed": len(self._changes),
            "changes": _fitting((each.told() for each in self._changes), MAX_TOLD),
            "manifest_complete": self._complete,
            "artifacts": _fitting(made, MAX_PATHS),
            "diff": cut("".join(map(_diff, self._changes[:MAX_NAMED])), MAX_DIFF, _CUT),
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
    if before is None or after is None:
        return f"{change.kind}: {_shown(change.path)} (not text, or large)\n"
    return unified(_shown(change.path), before.text if change.before else None, after.text)
