"""Changing files: write_file and edit_file, each with the exact diff that a person approves."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from typing import Any

from agent.errors import TargetChanged, ToolFailed
from agent.text import clean
from agent.toolbox import Preview, Tool, ToolContext, ToolResult
from agent.tools.diffs import split_lines
from agent.tools.files import PATH, path_reach, pinned_path
from agent.tools.texts import Decoded, decode, in_words
from agent.tools.writing import Write, bound_to, carry_out, current, preview_of
from agent.workspace import ABSENT, Workspace

CRLF = "\r\n"
NOT_OURS = frozenset({"memory"})
"""Top directories that are not for these tools: what lies there is remembered as the agent's own."""


def write_file(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    with in_words(arguments["path"]):
        return carry_out(_whole(arguments, context.workspace), context)


def edit_file(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    with in_words(arguments["path"]):
        expected = context.expected_target
        try:
            write = _edited(arguments, context.workspace)
        except ToolFailed as error:
            # The approved place in the text is gone because the text is another one.
            if expected not in (None, bound_to(context.workspace.target(arguments["path"]))):
                raise TargetChanged("The file changed since the edit was approved.") from error
            raise
        return carry_out(write, context)


def preview_write(arguments: dict[str, Any], context: ToolContext) -> Preview:
    with in_words(arguments["path"]):
        return preview_of(_whole(arguments, context.workspace))


def preview_edit(arguments: dict[str, Any], context: ToolContext) -> Preview:
    with in_words(arguments["path"]):
        return preview_of(_edited(arguments, context.workspace))


def _whole(arguments: dict[str, Any], workspace: Workspace) -> Write:
    old, target = current(workspace, arguments["path"], NOT_OURS)
    text = clean(arguments["content"])
    verb = "Create" if target.digest == ABSENT else "Overwrite"
    size = f"{len(split_lines(text)):,} lines, {len(text.encode()):,} bytes"
    return Write(
        target=target,
        old=old,
        forbidden=NOT_OURS,
        after=Decoded(text=text, encoding="utf-8"),
        summary=f"{verb} {target.path} ({size})",
    )


def _edited(arguments: dict[str, Any], workspace: Workspace) -> Write:
    old, target = current(workspace, arguments["path"], NOT_OURS)
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
    return Write(
        target=target,
        old=old,
        forbidden=NOT_OURS,
        after=replace(decoded, text=text),
        summary=f"Edit {target.path} ({places})",
    )


def _replaced(decoded: Decoded, arguments: dict[str, Any]) -> tuple[str, int]:
    """The new text and the number of replacements. The model sees and writes LF only: either end of
    a line fits, what is not replaced keeps its own, and what is new takes those of its place."""
    ends = _Ends(decoded.text)
    old, new = (clean(arguments[name]).replace(CRLF, "\n") for name in ("old", "new"))
    if old == new:
        raise ToolFailed("`old` and `new` are the same: nothing would change.")
    first = ends.flat.find(old)
    if first < 0:
        raise ToolFailed(
            "`old` does not occur in the file. Read the file and copy the text exactly, with its "
            "spaces and line breaks."
        )
    if ends.flat.find(old, first + 1) >= 0 and not arguments.get("replace_all", False):
        raise ToolFailed(
            f"`old` occurs {max(2, ends.flat.count(old)):,} times. Add the lines around the right "
            "one, or set replace_all."
        )
    pieces, at, count = [], 0, 0
    while first >= 0:
        pieces += [ends.own(at, first), ends.as_at(first, new)]
        at, count = first + len(old), count + 1
        first = ends.flat.find(old, at)
    return "".join([*pieces, ends.own(at, len(ends.flat))]), count


class _Ends:
    """A text with LF only, and what ended its lines before; places are of `flat`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.flat = text.replace(CRLF, "\n")
        found = re.finditer(CRLF, text) if len(self.flat) < len(text) else ()
        self._crlf = [end.start() - number for number, end in enumerate(found)]
        """Where a line ended with CRLF."""

    def own(self, start: int, stop: int) -> str:
        """A piece as it was."""
        return self._text[self._before(start) : self._before(stop)]

    def as_at(self, place: int, text: str) -> str:
        """A text with the line ends that are usual at a place: of the line there, else of the one
        before."""
        end = self.flat.find("\n", place)
        end = end if end >= 0 else self.flat.rfind("\n", 0, place)
        at = bisect_left(self._crlf, end)
        return text.replace("\n", CRLF) if self._crlf[at : at + 1] == [end] else text

    def _before(self, place: int) -> int:
        return place + bisect_left(self._crlf, place)


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
