"""Do the MCP servers work? Each is started or asked, and what came of it is listed: every declared
tool with its state and what a call of it would need.

Exit status: 0 every declared tool is in use, 1 something is not, 2 usage.
"""

from __future__ import annotations

import sys
from typing import Any

from asgiref.sync import async_to_sync
from django.core.management.base import CommandParser

from agent.errors import ToolFailed
from agent.mcp.declared import DeclaredTool, Server
from agent.mcp.definitions import Definition, offer, undeclared_paths
from agent.policy import Policy, Subject
from agent.text import visible
from tasks import servers, toolboxes
from tasks.audit import NOBODY
from tasks.conf import conf
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.models import McpTool

SAID = {
    McpTool.State.NEW: "not accepted yet",
    McpTool.State.CHANGED: "changed since it was accepted: out of use",
    McpTool.State.GONE: "the server does not list it",
}


class Command(UncheckedCommand):
    help = "Start the MCP servers that the settings declare and list their tools."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", nargs="?", default="", help="of one server; without it, of all")
        parser.add_argument(
            "--accept",
            action="store_true",
            help="accept what the named server says of its declared tools now",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name, declared = options["name"], conf().mcp_servers
        if name and name not in declared:
            known = ", ".join(declared) or "none"
            self._stop(2, f"There is no MCP server {name} in PILOTHOUSE_MCP_SERVERS: {known}.")
        if options["accept"] and not name:
            self._stop(2, "--accept: name the server whose definitions you have read.")
        if not declared:
            self.stdout.write("PILOTHOUSE_MCP_SERVERS declares none.")
        wanted = [declared[name]] if name else list(declared.values())
        with in_words():
            good = [self._check(each, options["accept"]) for each in wanted]
        sys.exit(0 if all(good) else 1)

    def _check(self, server: Server, accept: bool) -> bool:
        self.stdout.write(f"{server.name}  {server.where}")
        try:
            found = async_to_sync(toolboxes.look)(server)
        except ToolFailed as failure:
            self.stdout.write(f"FAIL  {failure}")
            for line in vars(failure).get("errors", "").splitlines():
                self.stdout.write(f"      | {visible(line)}")
            return False
        good = [self._tool(server, tool, found, accept) for tool in server.tools.values()]
        return all(good)

    def _tool(self, server: Server, tool: DeclaredTool, found: Any, accept: bool) -> bool:
        row = McpTool.objects.filter(server=server.name, name=tool.name).first()
        if row is None:
            return self._line(tool, "the server does not list it")
        if accept and row.state in (McpTool.State.NEW, McpTool.State.CHANGED):
            row = servers.accept(row, Definition(text=found[tool.name].text).digest, by=NOBODY)
        if row.state != McpTool.State.IN_FORCE:
            self._describe(row)
            return self._line(tool, SAID.get(row.state, row.problem))
        self._line(tool, "")
        offered = offer(server, tool, row.accepted)
        for name in undeclared_paths(tool, offered.parameters):
            said = f"its argument {visible(name)} looks like a path and is not declared as one"
            self.stdout.write(f"      note: {said}")
        return True

    def _line(self, tool: DeclaredTool, trouble: str) -> bool:
        subject = Subject(tool=tool.offered_as, capability=tool.capability)
        verdict = Policy().decide(subject).decision
        needs = {"allow": "runs unasked", "ask": "asks a person"}.get(verdict, "is refused")
        self.stdout.write(
            f"{'FAIL' if trouble else 'ok  '}  {tool.offered_as}  {tool.capability}: {needs} by"
            f" default{f'; {trouble}' if trouble else ''}"
        )
        return not trouble

    def _describe(self, row: McpTool) -> None:
        """What a person has to read before they accept it."""
        for line in visible(row.seen).splitlines():
            self.stdout.write(f"      | {line}")

    def _stop(self, status: int, message: str) -> None:
        self.stderr.write(message)
        sys.exit(status)
