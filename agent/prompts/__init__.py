"""The system prompt, built anew for every model call from values that the caller knows."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from importlib.resources import files

from agent.text import clean, cut, marked


@cache
def _template(name: str) -> str:
    return files("agent.prompts").joinpath(name).read_text(encoding="utf-8")


def system_prompt(*, now: datetime, workspace: str, instructions: str = "") -> str:
    """`now` must be aware: the model is told date and time zone."""
    standing = instructions.strip()
    return _template("system.md").format(
        date=f"{now:%A, %Y-%m-%d}",
        zone=now.tzname() or "UTC",
        workspace=json.dumps(cut(clean(workspace), 200), ensure_ascii=False),
        instructions=marked("instructions", standing, "owner") if standing else "None.",
    )


def compaction_prompt(*, words: int) -> str:
    """For the call in which the model summarizes an older part of the history."""
    return _template("compaction.md").format(words=words)
