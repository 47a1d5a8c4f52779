"""MCP servers: which tools a workspace may use, and what people accepted of their definitions.

The settings say which servers and tools there are, a workspace which servers it uses, and a person
accepts what a server says of each tool. All three are needed. What a server says later is compared
each time it is asked: another definition takes the tool out of use until a person accepts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial

from django.db import transaction
from django.utils import timezone

from agent.mcp.declared import Server
from agent.mcp.definitions import Definition, Offer, offer
from agent.mcp.plain_schemas import Unusable
from tasks import audit
from tasks.conf import conf
from tasks.errors import Conflict, Invalid
from tasks.models import McpTool, Workspace
from tasks.writer import writer


def offers(workspace: Workspace | None = None) -> tuple[Offer, ...]:
    """The tools that tasks of a workspace may use; without one, those of all servers. Asks the
    database only where there is a server: not for the event loop."""
    servers = conf().mcp_servers
    names = [name for name in servers if workspace is None or name in workspace.mcp_servers]
    if not names:
        return ()
    rows = McpTool.objects.filter(server__in=names).exclude(accepted="")
    found = (
        _offer(servers[row.server], row.name, row.accepted)
        for row in rows
        if row.state == McpTool.State.IN_FORCE
    )
    return tuple(each for each in found if each is not None)


@lru_cache(maxsize=1024)
def _offer(server: Server, name: str, text: str) -> Offer | None:
    """None: the settings do not declare it, or not any more in a way that fits."""
    tool = server.tools.get(name)
    if tool is None:
        return None
    try:
        return offer(server, tool, text)
    except Unusable:
        return None


# ── what servers say ──────────────────────────────────────────────────────────────────────────


async def noticed(server: Server, found: Mapping[str, Definition]) -> None:
    """Keep what a server says of its declared tools now."""
    await writer.run(partial(notice, server, found))


def notice(server: Server, found: Mapping[str, Definition]) -> None:
    """Command: what is not what was seen last is stored. A tool is never accepted here."""
    rows = {row.name: row for row in McpTool.objects.filter(server=server.name)}
    for name in server.tools:
        definition = found.get(name, Definition(text=""))
        row = rows.get(name)
        if row is None:
            if definition.text:
                _keep(McpTool(server=server.name, name=name), definition)
        elif (row.seen, row.problem) != (definition.text, definition.problem):
            _keep(row, definition)


def _keep(row: McpTool, definition: Definition) -> None:
    row.seen, row.problem = definition.text, definition.problem
    row.seen_at = timezone.now()
    row.save()


# ── what people say ───────────────────────────────────────────────────────────────────────────


def accept(tool: McpTool, digest: str, *, by: str) -> McpTool:
    """The definition with this digest is the one that counts. Raises Invalid for one that cannot be
    used, Conflict when the server says something else by now. Not for the event loop."""
    with transaction.atomic():
        row = McpTool.objects.select_for_update().get(pk=tool.pk)
        if digest != Definition(text=row.seen).digest:
            raise Conflict("changed", "The server says something else by now. Look at it again.")
        if row.state in (McpTool.State.UNUSABLE, McpTool.State.GONE):
            raise Invalid("unusable", f"This tool cannot be used: {row.problem or 'it is gone'}.")
        if row.state == McpTool.State.IN_FORCE:
            return row
        before = Definition(text=row.accepted).digest if row.accepted else ""
        row.accepted, row.accepted_by, row.accepted_at = row.seen, by, timezone.now()
        row.save()
        _note(row, "accepted", by, {"definition": before}, {"definition": digest})
    return row


def withdraw(tool: McpTool, *, by: str) -> McpTool:
    """The tool is out of use until somebody accepts it again. Not for the event loop."""
    with transaction.atomic():
        row = McpTool.objects.select_for_update().get(pk=tool.pk)
        if not row.accepted:
            return row
        before = Definition(text=row.accepted).digest
        row.accepted, row.accepted_by, row.accepted_at = "", "", None
        row.save()
        _note(row, "withdrawn", by, {"definition": before}, {})
    return row


def _note(
    row: McpTool, verb: str, by: str, before: Mapping[str, str], after: Mapping[str, str]
) -> None:
    audit.record(
        audit.Change(
            action=f"mcp_tool.{verb}",
            by=by,
            object_type="mcp_tool",
            object_id=str(row.pk),
            name=str(row),
            before=before,
            after=after,
        )
    )


def checked_names(names: Iterable[str]) -> list[str]:
    """Servers for a workspace, each once. Raises Invalid for one that the settings do not have."""
    wanted = sorted(set(names))
    unknown = [name for name in wanted if name not in conf().mcp_servers]
    if unknown:
        message = f"There is no MCP server {unknown[0]} in PILOTHOUSE_MCP_SERVERS."
        raise Invalid("mcp_servers", message, {"mcp_servers": message})
    return wanted


def allow(workspace: Workspace, names: Sequence[str], *, by: str) -> Workspace:
    """These servers, and no others, may be used in the workspace. Not for the event loop."""
    wanted = checked_names(names)
    with transaction.atomic():
        row = Workspace.objects.select_for_update().get(pk=workspace.pk)
        before = list(row.mcp_servers)
        if before == wanted:
            return row
        row.mcp_servers = wanted
        row.save(update_fields=["mcp_servers"])
        audit.record(
            audit.of_workspace(
                row,
                "workspace.changed",
                by,
                before={"mcp_servers": before},
                after={"mcp_servers": wanted},
            )
        )
    return row
