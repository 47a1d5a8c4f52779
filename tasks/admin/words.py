"""Words and figures of the admin's pages: short, and showing what would hide or reorder text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.formats import date_format

from agent.memory import MAIN
from agent.text import cut
from agent.text import visible as visible
from tasks.words import later
from tasks.words import say as say

_HASH = re.compile("[0-9a-f]{17,}")
MAX_SUBJECT = 300
VERBS = {
    "list_files": (later("list"), later("listed")),
    "read_file": (later("read"), later("read")),
    "search_files": (later("search for"), later("searched for")),
    "write_file": (later("write"), later("wrote")),
    "edit_file": (later("change"), later("changed")),
    "memory_write": (later("note in"), later("noted in")),
    "expand_skill": (later("read the skill"), later("read the skill")),
    "ask_user": (later("ask"), later("asked")),
    "run_command": (later("run"), later("ran")),
    "fetch_url": (later("fetch"), later("fetched")),
}
"""What a tool is to do, and what it did."""
_CALL = (later("call"), later("called"))

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
    todo, done = map(str, VERBS.get(name, _CALL))
    if name not in VERBS:
        return Call(todo, done, line(name))
    subject = arguments.get(_SUBJECTS.get(name, "path"), _UNSAID.get(name, ""))
    text = visible(subject) if isinstance(subject, str) else line(pretty(subject))
    if text in ("", ".") and name == "list_files":
        return Call(say("list the workspace"), say("listed the workspace"), "")
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
    return say("{n} tokens", n=f"{count / 1000:.1f}k" if count >= 1000 else count)


def moment(iso: str | None) -> datetime | None:
    return datetime.fromisoformat(iso) if iso else None


def at(when: datetime) -> str:
    """30 Nov 2026 09:00:13, in the zone that it has."""
    return date_format(when, say("d M Y H:i:s"))


def to_the_minute(when: datetime) -> str:
    """30 Nov 2026 09:00."""
    return date_format(when, say("d M Y H:i"))


def listed(parts: Iterable[str]) -> str:
    return say(", ").join(parts)


def count(number: int, one: str, many: str) -> str:
    """`count(3, "{n} step", "{n} steps")`"""
    return say(one if number == 1 else many, n=number)
