"""Taking an effect back: a record of what files were, a plan that shows it first, the deed.

1. A record is made with the effect and lies on the shelf under its digest, which the effect's result
   names: so the log says which record is the true one.
2. Only what the effect itself left is taken back. A file that is another one by now is `changed`,
   and then nothing is done at all.
3. Each file goes through the guard, whole or not at all, never through a link that its place became,
   and never over something that appeared in the last moment. Whatever was done before is `done`, so a deed that was cut off can be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from agent.errors import PathRefused
from agent.manifest import MAX_FILES, MAX_READ_BYTES, Change, File, Manifest, changes
from agent.paths import MAX_DEPTH
from agent.shelf import MAX_FILE_BYTES, Shelf
from agent.spool import Spool
from agent.text import clean
from agent.workspace import ABSENT, Target, Workspace

IN_THE_WAY = "in the way"
"""Stands for the digest of what is no file, or of what is above one, and would not go."""

Action = Literal["restore", "remove", "bring_back"]
Standing = Literal["ready", "done", "changed", "lost"]
"""ready: it is as the effect left it · done: it is as before the effect · changed: somebody changed
it since · lost: it cannot be taken back"""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A file at one moment."""

    sha256: str
    size: int
    mode: int | None
    """Permissions; None: not known, as of a file that is only about to be made."""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """What an effect did to one file."""

    path: str
    before: State | None
    """None: there was none."""
    after: State | None
    lost: str = ""
    """Why it cannot be taken back; empty: it can."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What an effect did to files."""

    files: tuple[Piece, ...]
    directories: tuple[str, ...] = ()
    """That it made."""
    complete: bool = True
    """False: it may have changed more than was looked at."""


# ── with the effect ───────────────────────────────────────────────────────────────────────────


def keep_write(shelf: Shelf, target: Target, old: bytes | None, new: bytes) -> dict[str, Any]:
    """Before a file is written: what its result's details say of undoing. `old` is what is there;
    None: nothing, or too much."""
    before, lost, mark = None, "", shelf.mark
    if target.digest != ABSENT:
        before = State(sha256=target.digest, size=target.size, mode=target.mode)
        lost = "" if old is not None and shelf.put(old) else _not_kept(target.size)
    mode = before.mode if before else None
    after = State(sha256=hashlib.sha256(new).hexdigest(), size=len(new), mode=mode)
    piece = Piece(path=target.path, before=before, after=after, lost=lost)
    return _told(shelf, Record(files=(piece,), directories=target.missing), mark)


def keep_changes(spool: Spool, before: Manifest, after: Manifest) -> dict[str, Any] | None:
    """The same behind a command that was watched; None: it changed nothing. `before` was taken with
    the spool: what changed goes from there to its shelf, smaller contents first."""
    changed = changes(before, after)
    if not changed:
        return None
    mark = spool.shelf.mark
    old = {file.sha256: file.stamp.size for change in changed if (file := change.before)}
    kept = {sha256 for sha256 in sorted(old, key=old.__getitem__) if spool.shelve(sha256)}
    made = after.directories - before.directories if before.complete else frozenset()
    record = Record(
        files=tuple(_piece(change, kept) for change in changed),
        directories=tuple(sorted(each for each in made if clean(each) == each)),
        complete=before.complete and after.complete,
    )
    return _told(spool.shelf, record, mark)


def _piece(change: Change, kept: Collection[str]) -> Piece:
    path = clean(change.path)
    lost = "" if path == change.path else "its name is no text in UTF-8"
    lost = lost or next(filter(None, map(_unread, (change.before, change.after))), "")
    if not lost and change.before is not None and change.before.sha256 not in kept:
        lost = _not_kept(change.before.stamp.size)
    return Piece(path=path, before=_state(change.before), after=_state(change.after), lost=lost)


def _unread(file: File | None) -> str:
    """Why nothing is known of what a file holds; empty: something is, or there is none."""
    if file is None or file.sha256:
        return ""
    if not file.opened:
        return "it is a link, cannot be opened, or is no plain file"
    return (
        f"its {file.stamp.size:,} bytes were not read: of a workspace no more than "
        f"{MAX_READ_BYTES:,} are, smaller files first"
    )


def _state(file: File | None) -> State | None:
    if file is None:
        return None
    return State(sha256=file.sha256, size=file.stamp.size, mode=file.mode)


def _not_kept(size: int) -> str:
    if size > MAX_FILE_BYTES:
        return f"it had {size:,} bytes, and more than {MAX_FILE_BYTES:,} are not kept"
    return f"it had {size:,} bytes, and there was no room to keep them"


def _told(shelf: Shelf, record: Record, mark: int) -> dict[str, Any]:
    put = shelf.put(msgspec.json.encode(record))
    if put is None:
        shelf.take_off(mark)
    lost = sum(1 for piece in record.files if piece.lost)
    said = {"files": len(record.files), "lost": lost}
    return {"record": put, **said} if put else {**said, "lost": len(record.files)}


# ── later ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What undoing would do to one file."""

    piece: Piece
    standing: Standing
    why: str = ""
    """Why it is lost."""
    data: bytes | None = None
    """What it would hold again."""

    @property
    def action(self) -> Action:
        if self.piece.before is None:
            return "remove"
        return "bring_back" if self.piece.after is None else "restore"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What undoing would do now."""

    record: Record
    fates: tuple[Fate, ...]

    def of(self, standing: Standing) -> list[Fate]:
        return [fate for fate in self.fates if fate.standing == standing]

    @property
    def digest(self) -> str:
        """Equal for equal plans: a person confirms the one that they saw."""
        said = [self.record, [fate.standing for fate in self.fates]]
        return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


def read(shelf: Shelf, digest: str) -> Record | None:
    """A record; None: it is not kept any more."""
    data = shelf.get(digest)
    return None if data is None else msgspec.json.decode(data, type=Record)


def plan(workspace: Workspace, shelf: Shelf, record: Record) -> Plan:
    """Look at every file. Changes nothing."""
    workspace = workspace.unlinked()
    fates = tuple(_fate(workspace, shelf, record, piece) for piece in record.files)
    return Plan(record=record, fates=fates)


def carry_out(workspace: Workspace, plan: Plan) -> Iterator[str]:
    """Take back what is ready; each path when it is done. Raises TargetChanged, PathRefused and
    OSError, and what was done before stays done."""
    workspace = workspace.unlinked()
    ready = plan.of("ready")
    for fate in ready:  # first, because a file may stand where a directory comes back
        if fate.piece.before is None:
            workspace.remove(fate.piece.path, expected=_digest(fate.piece.after))
            yield fate.piece.path
    for path in sorted(plan.record.directories, reverse=True):
        workspace.remove_directory(path)
    for fate in ready:
        before = fate.piece.before
        if before is not None and fate.data is not None:
            expected = _digest(fate.piece.after)
            workspace.write_atomic(fate.piece.path, fate.data, expected=expected, mode=before.mode)
            yield fate.piece.path


def _fate(workspace: Workspace, shelf: Shelf, record: Record, piece: Piece) -> Fate:
    if piece.lost:
        return Fate(piece=piece, standing="lost", why=piece.lost)
    try:
        now = _now(workspace, record, piece)
    except (PathRefused, OSError) as refusal:
        return Fate(piece=piece, standing="lost", why=_in_words(refusal))
    standing = _standing(piece, now)
    if standing != "ready" or piece.before is None:
        return Fate(piece=piece, standing=standing)
    data = shelf.get(piece.before.sha256)
    if data is None:
        why = f"its {piece.before.size:,} bytes are not kept any more, or damaged"
        return Fate(piece=piece, standing="lost", why=why)
    return Fate(piece=piece, standing="ready", data=data)


def _now(workspace: Workspace, record: Record, piece: Piece) -> tuple[str, int]:
    """Digest and permissions of what is there."""
    path = piece.path
    try:
        if path in record.directories and workspace.stat(path).kind == "directory":
            return (ABSENT if _would_go(workspace, record, path) else IN_THE_WAY), 0
        target = workspace.target(path)
    except FileNotFoundError:
        return ABSENT, 0
    except NotADirectoryError:
        comes_back = piece.before is not None
        return (IN_THE_WAY if comes_back and not _made_above(record, path) else ABSENT), 0
    return target.digest, target.mode


def _would_go(workspace: Workspace, record: Record, directory: str) -> bool:
    """Whether nothing is in a directory but what the effect made."""
    found = workspace.walk(directory, max_depth=MAX_DEPTH, max_entries=MAX_FILES)
    made = {*record.directories, *_made(record)}
    return found.complete and all(entry.path in made for entry in found.entries)


def _made_above(record: Record, path: str) -> bool:
    """Whether the file that stands where a directory of `path` was is the effect's own."""
    return any(path.startswith(f"{made}/") for made in _made(record))


def _made(record: Record) -> Iterator[str]:
    """Files that the effect made and undoing removes."""
    return (piece.path for piece in record.files if piece.before is None and not piece.lost)


def _standing(piece: Piece, now: tuple[str, int]) -> Standing:
    digest, mode = now
    before, after = _digest(piece.before), _digest(piece.after)
    if before == after and piece.before is not None and piece.after is not None:
        if digest != before:
            return "changed"
        known: dict[int | None, Standing] = {piece.after.mode: "ready", piece.before.mode: "done"}
        return known.get(mode, "changed")
    if digest == before:
        return "done"
    return "ready" if digest == after else "changed"


def _digest(state: State | None) -> str:
    return ABSENT if state is None else state.sha256


def _in_words(refusal: Exception) -> str:
    if isinstance(refusal, OSError):
        return refusal.strerror or "it cannot be opened"
    return str(refusal)
