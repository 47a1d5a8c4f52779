"""Files of a workspace, for people: the operator's own way to them, not the agent's.

Every path goes through the guard, like a tool's. Nothing asks for an approval, because a person
does it; who did what is in the audit instead. An entry is written *before* its change, so that none
is without one; if the change then fails, a second entry says so.

A file is replaced or deleted only as it was seen: whoever does it names its sha256.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agent.errors import PathRefused, TargetChanged
from agent.paths import normal, refused
from agent.workspace import ABSENT, Page, Place, Target
from agent.workspace import Workspace as Guard
from tasks import audit
from tasks.downloads import Download
from tasks.errors import Conflict, Invalid, NotFound, ServiceError, TooLarge
from tasks.models import Workspace

MAX_DOWNLOAD_BYTES = 1024 * 1024 * 1024
WHAT = "file"
NO_TEXT = "\ufffd"
"""What NULs, lone surrogates and bytes that are no UTF-8 become on their way to us."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What is there now."""

    path: str
    """Links resolved."""
    size: int
    sha256: str
    replaced: bool


def folder(workspace: Workspace, path: str, cursor: str | None, limit: int) -> tuple[Page, str]:
    """Some of what is in a folder, and the folder's path."""
    after = None if cursor is None else _place(cursor)
    with _in_words(path):
        return _guard(workspace).page(path, after=after, limit=limit), normal(path)


def open_file(workspace: Workspace, path: str) -> Download:
    """Reads all of it once: call it off the event loop."""
    with _in_words(path):
        source = _guard(workspace).open_read(path)
        try:
            size = os.fstat(source.fileno()).st_size
            if size > MAX_DOWNLOAD_BYTES:
                raise TooLarge("too_large", f"The file has more than {MAX_DOWNLOAD_BYTES:,} bytes.")
            digest = hashlib.file_digest(source, "sha256").hexdigest()
            if source.tell() != size:
                raise changing()
            source.seek(0)
        except BaseException:
            source.close()
            raise
        return Download(source, size, digest)


def changing() -> Conflict:
    return Conflict("changed", "The file changes just now. Try again.")


def write(workspace: Workspace, path: str, data: bytes, overwrite: str | None, by: str) -> Written:
    """Create a file, or replace the one whose sha256 is `overwrite`. For a thread.

    Conflict says `exists` or `changed`.
    """
    guard = _guard(workspace)
    with _in_words(path):
        try:
            target = guard.target(path)
        except NotADirectoryError:
            raise refused("the path goes through a file") from None
        if overwrite is None and target.digest != ABSENT:
            raise _exists(target)
        if target.digest != (overwrite or ABSENT):
            raise _changed()
        written = Written(
            path=target.path,
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            replaced=overwrite is not None,
        )
        after = {"path": written.path, "size": written.size, "sha256": written.sha256}
        before = _seen(target) if written.replaced else {}
        action = "file.replaced" if written.replaced else "file.uploaded"
        with _noted(workspace, action, by, before, after):
            _replace(guard.unlinked(), target, data)
    return written


def _replace(guard: Guard, target: Target, data: bytes) -> None:
    """At the place that was looked at, and at no link that it became since."""
    try:
        guard.write_atomic(target.path, data, expected=target.digest)
    except TargetChanged:
        now = guard.target(target.path)
        if target.digest == ABSENT != now.digest:  # somebody else created it first
            raise _exists(now) from None
        raise


def delete(workspace: Workspace, path: str, sha256: str, by: str) -> None:
    """Delete the file with this sha256, or Conflict (`changed`). For a thread."""
    guard = _guard(workspace)
    with _in_words(path):
        target = guard.target(path)
        if target.digest == ABSENT:
            raise NotFound(WHAT)
        if target.digest != sha256:
            raise _changed()
        with _noted(workspace, "file.deleted", by, _seen(target), {}):
            guard.unlinked().remove(target.path, expected=sha256)


def openable(path: str) -> bool:
    """Whether a listed path can be asked for: some names are no text."""
    try:
        return normal(path) == path and NO_TEXT not in path
    except PathRefused:
        return False


# ── cursors ───────────────────────────────────────────────────────────────────────────────────


def cursor_of(place: Place | None) -> str | None:
    if place is None:
        return None
    raw = msgspec.json.encode([place[0], os.fsencode(place[1])])
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _place(cursor: str) -> Place:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        other, name = msgspec.json.decode(text, type=tuple[bool, bytes])
    except (binascii.Error, ValueError):
        message = "This cursor is not one that a list of this API gave."
        raise Invalid("invalid", message, {"cursor": message}) from None
    return other, os.fsdecode(name)


# ── inside ────────────────────────────────────────────────────────────────────────────────────


def _guard(workspace: Workspace) -> Guard:
    return Guard(Path(workspace.root))


def _seen(target: Target) -> dict[str, Any]:
    return {"path": target.path, "size": target.size, "sha256": target.digest}


def _exists(found: Target) -> Conflict:
    details = {"sha256": found.digest, "size": found.size}
    return Conflict("exists", "There is a file with this name already.", details)


def _changed() -> Conflict:
    return Conflict("changed", "The file is not the one that you saw: it changed since then.")


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """What the guard and the disk say, as refusals for people."""
    try:
        if NO_TEXT in path:
            raise refused("the path holds what is no text")
        yield
    except PathRefused as refusal:
        raise Invalid("refused", str(refusal)) from refusal
    except TargetChanged as refusal:
        raise _changed() from refusal
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(WHAT) from None
    except IsADirectoryError:
        raise Invalid("is_folder", "The path names a folder, not a file.") from None
    except OSError as error:
        said = error.strerror or "the disk failed"
        raise Conflict("failed", f"It cannot be done: {said}.") from error


@contextmanager
def _noted(
    workspace: Workspace, action: str, by: str, before: dict[str, Any], after: dict[str, Any]
) -> Iterator[None]:
    audit.note(audit.of_workspace(workspace, action, by, before=before, after=after))
    try:
        with _in_words(""):
            yield
    except ServiceError as refusal:
        failed = f"{action} failed: {refusal.message}"
        audit.note(audit.of_workspace(workspace, "file.unchanged", by, note=failed))
        raise
