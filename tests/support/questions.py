"""Questions as a run asks them of a person."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from agent.events import ApprovalRequired

_WRITE = ApprovalRequired(
    step=1,
    kind="call",
    tool_call_id="call-1",
    name="write_file",
    arguments={},
    capability="file:write",
    risk="medium",
    reason="",
    rule="",
    diff="",
    options=[],
    arguments_digest="",
    target_digest="",
)


def question(**fields: Any) -> ApprovalRequired:
    """About a write, unless the fields say otherwise."""
    return replace(_WRITE, **fields)
