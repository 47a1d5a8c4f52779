"""The system prompt, built anew for every run from values that the caller knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files

from agent.text import clean, cut, marked


@cache
def _template(name: str) -> str:
    return files("agent.prompts").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Background:
    """What a run is told of files before it reads any; read once, when it begins."""

    memory: str = ""
    """Marked as data; empty: there is none."""
    skills: str = ""
    """The same."""


def system_prompt(
    *,
    now: datetime,
    workspace: str,
    instructions: str = "",
    background: Background | None = None,
) -> str:
    """`now` must be aware: the model is told date and time zone."""
    standing = instructions.strip()
    known = background or Background()
    return _template("system.md").format(
        date=f"{now:%A, %Y-%m-%d}",
        zone=now.tzname() or "UTC",
        workspace=json.dumps(cut(clean(workspace), 200), ensure_ascii=False),
        instructions=marked("instructions", standing, "owner") if standing else "None.",
        memory=known.memory or "Nothing yet.",
        skills=known.skills or "None.",
    )


def compaction_prompt(*, words: int) -> str:
    """For the call in which the model summarizes an older part of the history."""
    return _template("compaction.md").format(words=words)
