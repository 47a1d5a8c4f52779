"""Tools: what one is, and the box that validates, runs and bounds them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from agent.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """The two faces of an outcome."""

    ok: bool
    content: str
    """For the model."""
    details: dict[str, Any] = field(default_factory=dict)
    """For people and the audit trail; JSON. `artifact: <path>` names a file made for the person."""


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What a call would do, computed without doing it: the evidence of an approval."""

    diff: str
    """Unified diff for text, a summary of sizes and digests for anything else."""
    target_digest: str
    """Digest of what is there now; the call may only run while it still is."""
    summary: str = ""
    """One sentence for people: verb and object."""


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """What a running tool is given. Nothing else of the process is its business."""

    workspace: Workspace
    progress: Callable[[str, float | None, float | None], None] = lambda text, done, total: None
    """Tell people how far it is: text, done, total. May be called from any thread."""
    expected_target: str | None = None
    """The `target_digest` that was approved; a tool with an effect checks it last thing before."""


RunTool = Callable[[dict[str, Any], ToolContext], "ToolResult | Awaitable[ToolResult]"]
PreviewTool = Callable[[dict[str, Any], ToolContext], Preview]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool: data and functions, no base class."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema (2020-12) of the arguments object."""
    capability: str
    """`resource:action`; the last segment decides the policy default."""
    run: RunTool
    """A plain function runs in a thread, a coroutine function on the event loop."""
    preview: PreviewTool | None = None
    """Needed by every tool with an effect. Raises like `run`."""
    risk: str = "low"
    """low, medium or high."""
    timeout: float = 30.0
    """Seconds."""
