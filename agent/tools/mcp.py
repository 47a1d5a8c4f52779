"""The tools of MCP servers: `mcp_<server>_<tool>`, as the settings declare them.

1. Only what the settings declare and a person accepted becomes a tool. What its server says of it
   is shown to the model as a stranger's words; the policy never sees them.
2. Arguments that are declared as paths pass through the workspace's guard, and the server gets the
   one true spelling that was judged.
3. A person sees the server, the exact arguments and what it may reach; with another server, tool
   or target than was shown it does not run.
4. The effect of a program is watched as a command's: what it changed is told, and can be undone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from agent.errors import TargetChanged, ToolFailed
from agent.mcp.connections import Connections, Launcher
from agent.mcp.definitions import Offer
from agent.mcp.results import Answer
from agent.paths import refused
from agent.sandbox import INSIDE
from agent.text import visible
from agent.toolbox import NOT_A_DIFF, Preview, Reach, Tool, ToolContext, ToolResult
from agent.tools.watched import WAIT_SECONDS, watched
from agent.workspace import ABSENT, Workspace

SPARE_SECONDS = WAIT_SECONDS + 60
"""Beside the server's own time: for what runs before, and for the looks."""


def mcp_tool(offer: Offer) -> Tool:
    """The tool of an offer; how its server is reached, a run brings with it."""
    server = offer.server
    return Tool(
        name=offer.tool.offered_as,
        description=offer.description,
        parameters=offer.parameters,
        capability=offer.tool.capability,
        risk=offer.tool.risk,
        run=partial(_run, offer),
        preview=partial(_preview, offer),
        reach=partial(_reach, offer),
        pinned=partial(_pinned, offer),
        timeout=2 * server.start_seconds + server.seconds + SPARE_SECONDS,
    )


# ── paths ─────────────────────────────────────────────────────────────────────────────────────


def _paths(offer: Offer, arguments: dict[str, Any]) -> Iterator[str]:
    """The values of the arguments that are paths. Raises PathRefused for what is not text."""
    for name in offer.tool.paths:
        value = arguments.get(name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str):
                yield each
            elif each is not None:
                raise refused(f"{name} is not a path")


def _pinned(offer: Offer, arguments: dict[str, Any], paths: tuple[str, ...]) -> dict[str, Any]:
    """The arguments with these paths, in the order in which `_paths` gives them."""
    left = iter(paths)
    changed = dict(arguments)
    for name in offer.tool.paths:
        value = arguments.get(name)
        if isinstance(value, list):
            changed[name] = [next(left) if isinstance(each, str) else each for each in value]
        elif isinstance(value, str):
            changed[name] = next(left)
    return changed


def _guarded(offer: Offer, arguments: dict[str, Any], workspace: Workspace) -> tuple[str, ...]:
    """The paths as they truly are. Raises PathRefused as the file tools do."""
    return tuple(_true(offer, workspace, path) for path in _paths(offer, arguments))


def _true(offer: Offer, workspace: Workspace, path: str) -> str:
    true = workspace.resolve(path)
    try:
        kind = workspace.stat(true).kind
    except FileNotFoundError:
        kind = ""
    if kind == "other":
        raise refused("this is neither a file nor a folder")
    if kind != "directory" and not offer.tool.reads:
        workspace.target(true)  # a second hard link may lie outside
    return true


def _reach(offer: Offer, arguments: dict[str, Any], workspace: Workspace) -> Reach:
    location = offer.server.location
    return Reach(
        paths=_guarded(offer, arguments, workspace),
        host=location.host if location else "",
        exact=True,
    )


# ── evidence ──────────────────────────────────────────────────────────────────────────────────


def _preview(offer: Offer, arguments: dict[str, Any], context: ToolContext) -> Preview:
    workspace, server = context.workspace, offer.server
    launcher = _connections(context).launcher
    paths = _guarded(offer, arguments, workspace)
    targets = _targets(workspace, paths)
    said = [
        f"{NOT_A_DIFF} call of an MCP server",
        f"server: {server.name} ({server.where})",
        f"tool: {_line(offer.tool.name)} ({offer.tool.capability})",
        *_surroundings(offer, launcher),
        "",
        f"{NOT_A_DIFF} arguments, as they are sent",
        _shown(_pinned(offer, arguments, paths)),
    ]
    if targets:
        said += ["", f"{NOT_A_DIFF} paths of the workspace"]
        said += [f"{_line(path)}: {_what(digest)}" for path, digest in targets]
    return Preview(
        diff="\n".join(said) + "\n",
        target_digest=_digest(offer, launcher, targets),
        summary=f"Call {offer.tool.offered_as}",
    )


def _surroundings(offer: Offer, launcher: Launcher) -> list[str]:
    server = offer.server
    if server.location is not None:
        return [f"the arguments go to {server.location.host}; it reaches nothing of this server"]
    if not launcher.boxed(server):
        return [
            "sandbox: NONE",
            "  it can read, change and send whatever the server's own user can",
        ]
    network = "the network" if server.network else "no network"
    may = "can be changed, except memory/ and skills/" if server.writes else "can only be read"
    return [f"sandbox: bubblewrap, {network}", f"  the workspace ({INSIDE}) {may}"]


def _shown(arguments: dict[str, Any]) -> str:
    """As JSON; every line has a bar, so that none passes for one of ours."""
    text = visible(json.dumps(arguments, ensure_ascii=False, indent=2))
    return "│ " + text.replace("\n", "\n│ ")


def _line(text: str) -> str:
    return text if text.isprintable() else ascii(text)


def _what(digest: str) -> str:
    return {"": "a folder", ABSENT: "not there yet"}.get(digest, f"sha256 {digest}")


def _targets(workspace: Workspace, paths: Sequence[str]) -> list[tuple[str, str]]:
    """Each path with the digest of its file, `absent`, or "" for a folder."""
    return [(path, _digest_of(workspace, path)) for path in dict.fromkeys(paths)]


def _digest_of(workspace: Workspace, path: str) -> str:
    try:
        if workspace.stat(path).kind == "directory":
            return ""
    except FileNotFoundError:
        return ABSENT
    return workspace.digest(path)


def _digest(offer: Offer, launcher: Launcher, targets: Sequence[tuple[str, str]]) -> str:
    """Of all that a person was shown beside the arguments."""
    told = [
        offer.digest,
        offer.server.whole,
        _surroundings(offer, launcher),
        [list(target) for target in targets],
    ]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


# ── running ───────────────────────────────────────────────────────────────────────────────────


async def _run(offer: Offer, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    connections = _connections(context)
    sent = await asyncio.to_thread(_checked, offer, arguments, context, connections.launcher)
    if offer.tool.reads or offer.server.location is not None:
        return await _called(offer, sent, context, connections)
    result, report = await watched(context, lambda: _called(offer, sent, context, connections))
    root = str(context.workspace.root)
    return ToolResult(
        ok=result.ok,
        content="\n".join([result.content.replace(root, "(workspace)"), *report.lines()]),
        details={**result.details, **report.details()},
    )


def _connections(context: ToolContext) -> Connections:
    if context.connections is None:
        raise ToolFailed("MCP servers are called in a task only.")
    return context.connections


def _checked(
    offer: Offer, arguments: dict[str, Any], context: ToolContext, launcher: Launcher
) -> dict[str, Any]:
    """The arguments to send, as the last thing before. Raises PathRefused, TargetChanged."""
    paths = _guarded(offer, arguments, context.workspace)
    if context.expected_target is not None:
        now = _digest(offer, launcher, _targets(context.workspace, paths))
        if now != context.expected_target:
            raise TargetChanged("The call would not do what was approved.")
    return _pinned(offer, arguments, paths)


async def _called(
    offer: Offer, arguments: dict[str, Any], context: ToolContext, connections: Connections
) -> ToolResult:
    """A failure is a result here: what the call changed before it has to be told, too."""
    server = offer.server
    details = {"server": server.name, "tool": offer.tool.name, "definition": offer.digest}
    try:
        answer: Answer = await connections.call(offer, arguments, context.progress)
    except ToolFailed as failure:
        return ToolResult(ok=False, content=str(failure), details=details)
    return ToolResult(ok=answer.ok, content=answer.text, details={**details, "parts": answer.kinds})
