"""Words and figures of the admin's pages: short, and showing what would hide or reorder text."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any, NamedTuple

from agent.memory import MAIN
from agent.text import cut
from agent.text import visible as visible

_HASH = re.compile("[0-9a-f]{17,}")
MAX_SUBJECT = 300
VERBS = {
    "list_files": ("list", "listed"),
    "read_file": ("read", "read"),
    "search_files": ("search for", "searched for"),
    "write_file": ("write", "wrote"),
    "edit_file": ("change", "changed"),
    "memory_write": ("note in", "noted in"),
    "expand_skill": ("read the skill", "read the skill"),
    "ask_user": ("ask", "asked"),
    "run_command": ("run", "ran"),
    "fetch_url": ("fetch", "fetched"),
}
"""What a tool is to do, and what it did."""


_SUBJECTS = {
    "expand_skill": "name",
    "search_files": "query",
    "ask_user": "question",
    "run_command": "command",
    "fetch_url": "url",
}
"""The argument that says what a call is about, where it is not a path."""
_UNSAID = {"memory_write": MAIN}
"""What a call is about that does not say it."""


class Call(NamedTuple):
    """A tool call as words: verb and object."""

    todo: str
    done: str
    subject: str


def line(text: str, limit: int = MAX_SUBJECT) -> str:
    """The text on one line."""
    return cut(" ".join(visible(text).split()), limit)


def call_of(name: str, arguments: dict[str, Any] | None) -> Call:
    """A path is never cut: what is decided about must be read whole."""
    arguments = arguments or {}
    todo, done = VERBS.get(name, ("call", "called"))
    if name not in VERBS:
        return Call(todo, done, line(name))
    subject = arguments.get(_SUBJECTS.get(name, "path"), _UNSAID.get(name, ""))
    text = visible(subject) if isinstance(subject, str) else line(pretty(subject))
    if text in ("", ".") and name == "list_files":
        return Call("list the workspace", "listed the workspace", "")
    return Call(todo, done, text)


def pretty(value: Any) -> str:
    """JSON for people."""
    return visible(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def short(digest: str, groups: int = 2) -> str:
    """The first characters of a hash, in groups of four."""
    return " ".join(digest[4 * n : 4 * n + 4] for n in range(groups))


def ends(digest: str) -> str:
    """The beginning and the end of a hash; words like `absent` or `sandbox:bubblewrap` as they are."""
    return f"{short(digest)} … {digest[-4:]}" if _HASH.fullmatch(digest) else line(digest) or "-"


def seconds(value: float) -> str:
    """0.4 s, 18.2 s, 6 min 51 s, 3 h 4 min."""
    if value < 60:
        return f"{value:.2f} s" if value < 0.1 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def elapsed(value: float) -> str:
    return seconds(value) if value >= 0.1 else f"{value:.1f} s"


def tokens(count: int) -> str:
    return f"{count / 1000:.1f}k tokens" if count >= 1000 else f"{count} tokens"


def moment(iso: str | None) -> datetime | None:
    return datetime.fromisoformat(iso) if iso else None
