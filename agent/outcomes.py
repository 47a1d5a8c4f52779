"""What becomes of calls that do not run, or did not come to their end: results without an effect of
now, and what an effect of before left behind.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import ToolFailed
from agent.judging import Judge
from agent.toolbox import NOT_A_DIFF, Preview
from agent.tools import unfinished
from agent.tools.alone import alone
from agent.tools.unfinished import Told
from agent.transcript import Call

WAIT_SECONDS = 60
"""For a command that runs in the workspace."""
READ_ACTIONS = frozenset({"read", "list"})


def read_only(capability: str) -> bool:
    """Repeating it changes nothing."""
    return capability.rpartition(":")[2] in READ_ACTIONS


@dataclass(frozen=True, kw_only=True)
class Settle:
    """A call has its result without running (again)."""

    ok: bool
    content: str
    details: dict[str, Any] = field(default_factory=dict)
    """What it did, as far as it was begun."""


def settled(call: Call) -> Settle | None:
    """The result of a call that a person answered without letting it run."""
    answer = call.answer
    if answer is None:
        return None
    if answer.kind == "unknown_effect" and answer.answer == "done":
        return Settle(ok=True, content=_CONFIRMED + _comment(answer.comment))
    if answer.status == "approved":
        return None
    if answer.kind == "unknown_effect":
        return Settle(ok=False, content=_ABANDONED + _comment(answer.comment))
    if answer.status == "expired" and answer.kind == "question":
        return Settle(ok=False, content=f"Nobody answered in time. {_WITHOUT_ANSWER}")
    if answer.status == "expired":
        return Settle(ok=False, content="Not run: nobody answered in time, which means no.")
    if answer.kind == "question":
        said = f"The person lets you decide.{_comment(answer.comment)} {_WITHOUT_ANSWER}"
        return Settle(ok=False, content=said)
    who = answer.resolved_by or "a person"
    return Settle(ok=False, content=f"Not run: rejected by {who}." + _comment(answer.comment))


def _comment(text: str) -> str:
    return f" Their comment: {text}" if text else ""


def denied(reason: str) -> str:
    return f"Refused by policy: {reason} Do not try to reach the same in another way."


def nobody_there(reason: str) -> str:
    return denied(f"{reason} Nobody is there to decide.")


# ── what was begun ────────────────────────────────────────────────────────────────────────────


async def look_behind(judge: Judge) -> None:
    """What a command did whose process died is looked at once, before anything else is done."""
    if judge.shelf is None:
        return
    with suppress(ToolFailed):  # another one is still running there: it stays unknown
        async with alone(judge.workspace.root, WAIT_SECONDS):
            await asyncio.to_thread(unfinished.settle, judge.workspace, judge.shelf)


async def traces(judge: Judge, call: Call) -> Told | None:
    """What is known of a call that was begun and has no result."""
    if judge.shelf is None:
        return None
    return await asyncio.to_thread(unfinished.told, judge.shelf, call.asked.tool_call_id)


async def with_traces(judge: Judge, call: Call, settle: Settle) -> Settle:
    """A result that says what the call did."""
    if not call.started or read_only(call.capability):
        return settle
    told = await traces(judge, call)
    if told is None:
        return settle
    content = "\n".join([settle.content, *told.lines])
    return replace(settle, content=content, details=told.details)


async def shown_with_traces(judge: Judge, call: Call, preview: Preview) -> Preview:
    """The same as evidence for whoever decides."""
    told = await traces(judge, call)
    if told is None or not told.lines:
        return preview
    since = [preview.diff.rstrip("\n"), "", f"{NOT_A_DIFF} what it changed", *told.lines]
    return replace(preview, diff="\n".join(since) + "\n")


_WITHOUT_ANSWER = "Go on without it: choose what is safe and say what you assumed."
NOBODY_ANSWERS = f"In this run nobody is asked. {_WITHOUT_ANSWER}"
_CONFIRMED = "A person confirmed that this call took effect before an interruption. Not run again."
_ABANDONED = "A person gave this call up after an interruption. Its effect is unknown."
