"""A write as a person approves it: what is there, what would be, the evidence, and the effect.

A preview and the call that follows it compute the same new content. The call runs only against the
place and the content that the preview saw (`expected_target`); the guard looks at the content once
more right before the rename.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from agent.directory import changed
from agent.errors import TargetChanged, ToolFailed
from agent.shelf import MAX_FILE_BYTES
from agent.text import cut
from agent.toolbox import Preview, ToolContext, ToolResult
from agent.tools import unfinished
from agent.tools.diffs import unified
from agent.tools.texts import MAX_TEXT_BYTES, Decoded, decode
from agent.undo import keep_write
from agent.workspace import ABSENT, Target, Workspace


@dataclass(frozen=True, kw_only=True)
class Write:
    """What a call would do."""

    target: Target
    old: bytes | None
    """What is there, as far as it can be shown; None when nothing is, or too much."""
    after: Decoded
    summary: str
    forbidden: frozenset[str] = frozenset()
    """Top directories that are not for this tool."""
    made: bool = True
    """It is a file made for the person."""

    @property
    def new(self) -> bytes:
        return self.after.encode(self.after.text)


def current(
    workspace: Workspace, path: str, forbidden: frozenset[str] = frozenset()
) -> tuple[bytes | None, Target]:
    """What is there, if it can be shown, and its digest; both of the same moment."""
    target = workspace.target(path, forbidden=forbidden)
    if target.digest == ABSENT or target.size >= MAX_TEXT_BYTES:
        return None, target
    data = workspace.read_bytes(path, MAX_TEXT_BYTES)
    if sha256(data) != target.digest:
        raise ToolFailed("The file is being changed by somebody else right now. Try again.")
    return data, target


def preview_of(write: Write) -> Preview:
    return Preview(
        diff=_evidence(write), target_digest=bound_to(write.target), summary=cut(write.summary, 300)
    )


def bound_to(target: Target) -> str:
    """What an approval is bound to: the file and what is in it. Behind a link that was set anew there
    may be the same content in another file, about which nobody was asked."""
    return sha256(os.fsencode(f"{target.path}\0{target.digest}"))


def _evidence(write: Write) -> str:
    """A diff where both sides are text; of anything else the size and the digest."""
    path, after = write.target.path, write.after
    if write.target.digest == ABSENT:
        return unified(path, None, after.text)
    before = decode(write.old) if write.old is not None else None
    if before is None:
        return (
            f"{path} is binary or too large for a diff and would be replaced whole:\n"
            f"now:   {write.target.size:,} bytes, sha256 {write.target.digest}\n"
            f"after: {len(write.new):,} bytes, sha256 {sha256(write.new)}\n"
        ) + unified(path, "", after.text)
    diff = _conversion(before, after) + unified(path, before.text, after.text)
    return diff or "The file already has exactly this content.\n"


def _conversion(before: Decoded, after: Decoded) -> str:
    """What a diff of texts does not show."""
    said = []
    if (before.encoding, before.bom) != (after.encoding, after.bom) and not _ascii(before):
        said.append(f"encoding: {_name(before)} becomes {_name(after)}\n")
    if before.newline != after.newline and "\n" in before.text and "\n" in after.text:
        said.append("line ends: CRLF and LF are exchanged\n")
    return "".join(said)


def _ascii(decoded: Decoded) -> bool:
    return not decoded.bom and decoded.text.isascii()


def _name(decoded: Decoded) -> str:
    return f"{decoded.encoding} with BOM" if decoded.bom else decoded.encoding


def carry_out(write: Write, context: ToolContext) -> ToolResult:
    """Replace exactly what was looked at, and keep that first. No link is followed any more."""
    if context.expected_target not in (None, bound_to(write.target)):
        raise changed()
    workspace = context.workspace.unlinked()
    undo = _kept(write, workspace, context)
    try:
        workspace.write_atomic(
            write.target.path, write.new, expected=write.target.digest, forbidden=write.forbidden
        )
    except TargetChanged as error:
        if context.expected_target is not None:
            raise
        # Nobody approved anything that could be asked again.
        raise ToolFailed("The file changed during the edit. Read it again.") from error
    return ToolResult(
        ok=True,
        content=f"Done: {write.summary}.",
        details={
            **({"artifact": write.target.path} if write.made else {"path": write.target.path}),
            "bytes": len(write.new),
            "sha256": sha256(write.new),
            **undo,
        },
    )


def _kept(write: Write, workspace: Workspace, context: ToolContext) -> dict[str, Any]:
    if context.shelf is None:
        return {}
    old = write.old
    if old is None and 0 < write.target.size <= MAX_FILE_BYTES:
        # Too large to be shown.
        old = workspace.read_bytes(write.target.path, MAX_FILE_BYTES)
    if old is not None and sha256(old) != write.target.digest:
        raise ToolFailed("The file is being changed by somebody else right now. Try again.")
    undo = {"undo": keep_write(context.shelf, write.target, old, write.new)}
    unfinished.tell(context.shelf, context.call_id, undo)
    return undo


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
