"""Changing files: write_file and edit_file, each with the exact diff that a person approves.

A preview and the call that follows it compute the same new content. The call runs only against the
content that the preview saw (`expected_target`), checked by the guard right before the rename.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import TargetChanged, ToolFailed
from agent.shelf import MAX_FILE_BYTES
from agent.text import clean, cut
from agent.toolbox import Preview, Tool, ToolContext, ToolResult
from agent.tools import unfinished
from agent.tools.diffs import split_lines, unified
from agent.tools.files import PATH, path_reach, pinned_path
from agent.tools.texts import MAX_TEXT_BYTES, Decoded, decode, in_words
from agent.undo import keep_write
from agent.workspace import ABSENT, Target, Workspace

NOT_OURS = frozenset({"memory"})
"""Top directories that are not for these tools: what lies there is remembered as the agent's own."""


@dataclass(frozen=True, kw_only=True)
class _Write:
    """What a call would do."""

    target: Target
    old: bytes | None
    """What is there, as far as it can be shown; None when nothing is, or too much."""
    after: Decoded
    summary: str

    @property
    def new(self) -> bytes:
        return self.after.encode(self.after.text)


def write_file(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    with in_words(arguments["path"]):
        return _carry_out(_whole(arguments, context.workspace), arguments["path"], context)


def edit_file(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    with in_words(arguments["path"]):
        expected = context.expected_target
        try:
            write = _edited(arguments, context.workspace)
        except ToolFailed as error:
            # The approved place in the text is gone because the text is another one.
            if expected not in (None, context.workspace.target(arguments["path"]).digest):
                raise TargetChanged("The file changed since the edit was approved.") from error
            raise
        return _carry_out(write, arguments["path"], context)


def preview_write(arguments: dict[str, Any], context: ToolContext) -> Preview:
    with in_words(arguments["path"]):
        return _preview(_whole(arguments, context.workspace))


def preview_edit(arguments: dict[str, Any], context: ToolContext) -> Preview:
    with in_words(arguments["path"]):
        return _preview(_edited(arguments, context.workspace))


def _whole(arguments: dict[str, Any], workspace: Workspace) -> _Write:
    old, target = _current(workspace, arguments["path"])
    text = clean(arguments["content"])
    verb = "Create" if target.digest == ABSENT else "Overwrite"
    size = f"{len(split_lines(text)):,} lines, {len(text.encode()):,} bytes"
    return _Write(
        target=target,
        old=old,
        after=Decoded(text=text, encoding="utf-8"),
        summary=f"{verb} {target.path} ({size})",
    )


def _edited(arguments: dict[str, Any], workspace: Workspace) -> _Write:
    old, target = _current(workspace, arguments["path"])
    if target.digest == ABSENT:
        raise ToolFailed(f"There is no file {target.path!r}. write_file makes a new one.")
    decoded = decode(old) if old is not None else None
    if old is None or decoded is None:
        raise ToolFailed(f"{target.path} is binary or too large to be edited as text.")
    if decoded.encode(decoded.text) != old:
        raise ToolFailed(f"{target.path} has damaged characters that an edit would lose.")
    text, count = _replaced(decoded, arguments)
    try:
        decoded.encode(text)
    except UnicodeEncodeError as error:
        raise ToolFailed(
            f"{target.path} is stored as {decoded.encoding}, which has no "
            f"{error.object[error.start]!r}. Use write_file to store it anew as UTF-8."
        ) from error
    places = "1 place" if count == 1 else f"{count:,} places"
    return _Write(
        target=target,
        old=old,
        after=replace(decoded, text=text),
        summary=f"Edit {target.path} ({places})",
    )


def _replaced(decoded: Decoded, arguments: dict[str, Any]) -> tuple[str, int]:
    """The new text and the number of replacements. The model sees and writes LF only."""
    text, old, new = decoded.text, clean(arguments["old"]), clean(arguments["new"])
    if decoded.newline == "\r\n":
        text, old, new = (each.replace("\r\n", "\n") for each in (text, old, new))
    if old == new:
        raise ToolFailed("`old` and `new` are the same: nothing would change.")
    first = text.find(old)
    if first < 0:
        raise ToolFailed(
            "`old` does not occur in the file. Read the file and copy the text exactly, with its "
            "spaces and line breaks."
        )
    if text.find(old, first + 1) >= 0 and not arguments.get("replace_all", False):
        raise ToolFailed(
            f"`old` occurs {max(2, text.count(old)):,} times. Add the lines around the right one, "
            "or set replace_all."
        )
    changed = text.replace(old, new)
    if decoded.newline == "\r\n":
        changed = changed.replace("\n", "\r\n")
    return changed, text.count(old)


def _current(workspace: Workspace, path: str) -> tuple[bytes | None, Target]:
    """What is there, if it can be shown, and its digest; both of the same moment."""
    target = workspace.target(path, forbidden=NOT_OURS)
    if target.digest == ABSENT or target.size >= MAX_TEXT_BYTES:
        return None, target
    data = workspace.read_bytes(path, MAX_TEXT_BYTES)
    if _sha256(data) != target.digest:
        raise ToolFailed("The file is being changed by somebody else right now. Try again.")
    return data, target


def _preview(write: _Write) -> Preview:
    return Preview(
        diff=_evidence(write), target_digest=write.target.digest, summary=cut(write.summary, 300)
    )


def _evidence(write: _Write) -> str:
    """A diff where both sides are text; of anything else the size and the digest."""
    path, after = write.target.path, write.after
    if write.target.digest == ABSENT:
        return unified(path, None, after.text)
    before = decode(write.old) if write.old is not None else None
    if before is None:
        return (
            f"{path} is binary or too large for a diff and would be replaced whole:\n"
            f"now:   {write.target.size:,} bytes, sha256 {write.target.digest}\n"
            f"after: {len(write.new):,} bytes, sha256 {_sha256(write.new)}\n"
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


def _carry_out(write: _Write, path: str, context: ToolContext) -> ToolResult:
    """Replace exactly what was looked at, and keep that first."""
    undo = _kept(write, path, context)
    expected = context.expected_target or write.target.digest
    try:
        context.workspace.write_atomic(path, write.new, expected=expected, forbidden=NOT_OURS)
    except TargetChanged as error:
        if context.expected_target is not None:
            raise
        # Nobody approved anything that could be asked again.
        raise ToolFailed("The file changed during the edit. Read it again.") from error
    return ToolResult(
        ok=True,
        content=f"Done: {write.summary}.",
        details={
            "artifact": write.target.path,
            "bytes": len(write.new),
            "sha256": _sha256(write.new),
            **undo,
        },
    )


def _kept(write: _Write, path: str, context: ToolContext) -> dict[str, Any]:
    if context.shelf is None:
        return {}
    old = write.old
    if old is None and 0 < write.target.size <= MAX_FILE_BYTES:
        old = context.workspace.read_bytes(path, MAX_FILE_BYTES)  # too large to be shown
    if old is not None and _sha256(old) != write.target.digest:
        raise ToolFailed("The file is being changed by somebody else right now. Try again.")
    undo = {"undo": keep_write(context.shelf, write.target, old, write.new)}
    unfinished.tell(context.shelf, context.call_id, undo)
    return undo


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


WRITE_FILE = Tool(
    name="write_file",
    description=(
        "Create a text file in the workspace, or overwrite it whole (UTF-8). Directories are made. "
        "A person sees the exact change and decides before anything is written."
    ),
    parameters={
        "type": "object",
        "properties": {"path": PATH, "content": {"type": "string"}},
        "required": ["path", "content"],
        "additionalProperties": False,
    },
    capability="file:write",
    risk="medium",
    run=write_file,
    preview=preview_write,
    reach=path_reach,
    pinned=pinned_path,
)

EDIT_FILE = Tool(
    name="edit_file",
    description=(
        "Replace a text in a file of the workspace by another one. `old` must occur exactly once, "
        "unless replace_all. A person sees the exact change and decides first."
    ),
    parameters={
        "type": "object",
        "properties": {
            "path": PATH,
            "old": {"type": "string", "minLength": 1, "description": "Copied exactly."},
            "new": {"type": "string"},
            "replace_all": {"type": "boolean", "description": "false if not given"},
        },
        "required": ["path", "old", "new"],
        "additionalProperties": False,
    },
    capability="file:write",
    risk="medium",
    run=edit_file,
    preview=preview_edit,
    reach=path_reach,
    pinned=pinned_path,
)
