"""search_files: which lines of which files contain a text.

A plain text, not a pattern: a regular expression of the model could keep a thread busy for years.
Bounded in files, bytes, matches and seconds; what was left out is said.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from agent.errors import PathRefused, ToolFailed
from agent.toolbox import Tool, ToolContext, ToolResult
from agent.tools.files import PATH, UNENTERED, path_reach, pinned_path
from agent.tools.texts import decode, in_words
from agent.workspace import Entry, Workspace

MAX_FILES = 5000
MAX_FILE_BYTES = 2 * 1024 * 1024
MAX_BYTES = 128 * 1024 * 1024
MAX_MATCHES = 200
MAX_SECONDS = 10.0
SNIPPET = 200
"""Characters shown of a line, around the match."""
_MAX_LEVELS = 16
_MAX_ENTRIES = 50_000


@dataclass(kw_only=True)
class _Search:
    """One search and how far it came."""

    query: str
    case_sensitive: bool
    lines: list[str] = field(default_factory=list)
    files: int = 0
    read: int = 0
    left_out: set[str] = field(default_factory=set)
    deadline: float = field(default_factory=lambda: time.monotonic() + MAX_SECONDS)

    def full(self) -> bool:
        reasons = {
            f"what comes after {MAX_MATCHES} matches": len(self.lines) >= MAX_MATCHES,
            f"what comes after {MAX_FILES:,} files": self.files >= MAX_FILES,
            f"what comes after {MAX_BYTES:,} bytes": self.read >= MAX_BYTES,
            f"what comes after {MAX_SECONDS:g} seconds": time.monotonic() > self.deadline,
        }
        self.left_out |= {reason for reason, reached in reasons.items() if reached}
        return any(reasons.values())

    def look_into(self, path: str, data: bytes) -> None:
        self.files += 1
        self.read += len(data)
        if len(data) == MAX_FILE_BYTES:
            self.left_out.add(f"what files have after {MAX_FILE_BYTES:,} bytes")
        decoded = decode(data, whole=len(data) < MAX_FILE_BYTES)
        if decoded is None or self._fold(self.query) not in self._fold(decoded.text):
            return
        for number, line in enumerate(decoded.lines, 1):
            at = self._fold(line).find(self._fold(self.query))
            if at >= 0 and not self.full():
                self.lines.append(f"{path}:{number}: {_snippet(line, at, len(self.query))}")

    def _fold(self, text: str) -> str:
        return text if self.case_sensitive else text.lower()


def search_files(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    query = arguments["query"]
    if "\n" in query:
        raise ToolFailed("A search is for a text within one line.")
    search = _Search(query=query, case_sensitive=arguments.get("case_sensitive", False))
    entries, complete = _candidates(arguments, context.workspace)
    for entry in entries:
        if search.full():
            break
        if not context.permits(entry.path):
            search.left_out.add("files that a rule closes to this run")
            continue
        if search.files % 100 == 0:
            context.progress(f"searching {entry.path}", search.files, None)
        try:
            search.look_into(entry.path, context.workspace.read_bytes(entry.path, MAX_FILE_BYTES))
        except (OSError, PathRefused):
            search.left_out.add("files that could not be opened")
    if not complete:
        search.left_out.add("deeper or further entries than a search looks at")
    return _result(search)


def _candidates(arguments: dict[str, Any], workspace: Workspace) -> tuple[list[Entry], bool]:
    """Files to look into, and whether none was left out."""
    path, glob = arguments.get("path", "."), arguments.get("glob")
    with in_words(path):
        start = workspace.stat(path)
        if start.kind != "directory":
            return [start], True
        found = workspace.walk(
            path, max_depth=_MAX_LEVELS, max_entries=_MAX_ENTRIES, skip=UNENTERED
        )
    files = [entry for entry in found.entries if entry.kind == "file"]
    return [entry for entry in files if glob is None or _fits(entry.path, glob)], found.complete


def _fits(path: str, glob: str) -> bool:
    """The whole path, its end, or (without a slash in the glob) its name."""
    name = path.rpartition("/")[2]
    glob = glob.removeprefix("./")
    return (
        fnmatchcase(path, glob)
        or fnmatchcase(path, glob.removeprefix("**/"))
        or ("/" not in glob and fnmatchcase(name, glob))
    )


def _snippet(line: str, at: int, size: int) -> str:
    start = max(0, min(at - (SNIPPET - size) // 2, len(line) - SNIPPET))
    cut_out = line[start : start + max(SNIPPET, size)]
    before = "…" if start else ""
    after = "…" if start + len(cut_out) < len(line) else ""
    return f"{before}{cut_out}{after}"


def _result(search: _Search) -> ToolResult:
    lines = search.lines or [f"No line in {search.files:,} files contains this text."]
    if search.left_out:
        lines = [*lines, f"[Left out: {'; '.join(sorted(search.left_out))}. Narrow path or glob.]"]
    return ToolResult(
        ok=True,
        content="\n".join(lines),
        details={
            "matches": len(search.lines),
            "files": search.files,
            "left_out": sorted(search.left_out),
        },
    )


SEARCH_FILES = Tool(
    name="search_files",
    description=(
        "Find lines that contain a text (not a pattern) in the text files of the workspace. "
        "Gives path:line: text for each."
    ),
    parameters={
        "type": "object",
        "properties": {
            "query": {"type": "string", "minLength": 1, "maxLength": 500},
            "path": PATH,
            "glob": {
                "type": "string",
                "maxLength": 200,
                "description": "Only files whose path or name fits, e.g. *.csv or notes/*.md.",
            },
            "case_sensitive": {"type": "boolean", "description": "false if not given"},
        },
        "required": ["query"],
        "additionalProperties": False,
    },
    capability="file:read",
    run=search_files,
    reach=path_reach,
    pinned=pinned_path,
)
