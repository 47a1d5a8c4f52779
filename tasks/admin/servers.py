"""MCP servers: what the settings declare, what the servers say of their tools, and who accepted it.

A definition is accepted as it was shown, word for word: when the server says something else by
then, nothing is accepted.
"""

from __future__ import annotations

import json
from difflib import unified_diff
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agent.errors import ToolFailed
from agent.mcp.definitions import Definition
from tasks import servers, toolboxes
from tasks.admin import diffs, words
from tasks.admin.base import EvidenceAdmin, badge, by
from tasks.conf import conf
from tasks.errors import ServiceError
from tasks.models import McpTool
from tasks.told import told
from tasks.words import later, say

STATES: dict[str, tuple[str, str, str]] = {
    McpTool.State.NEW: ("clock", "wait", later("not accepted yet")),
    McpTool.State.IN_FORCE: ("check", "ok", later("in use")),
    McpTool.State.CHANGED: ("risk", "risk", later("changed: out of use")),
    McpTool.State.UNUSABLE: ("cross", "fail", later("cannot be used")),
    McpTool.State.GONE: ("gap", "plain", later("not listed")),
}


@admin.register(McpTool)
class McpToolAdmin(EvidenceAdmin):
    change_list_template = "admin/tasks/mcptool/change_list.html"
    change_form_template = "admin/tasks/mcptool/change_form.html"
    list_display = ["tool", "server", "its_state", "capability", "seen_at", "accepted_by"]
    list_filter = ["server"]
    search_fields = ["name", "server"]
    search_help_text = later("A part of the tool's or the server's name, or an id.")
    ordering = ["server", "name"]
    readonly_fields = [
        *("server", "tool", "offered_as", "its_state", "capability", "paths", "seen_at"),
        *("accepted_by", "accepted_at", "digest"),
    ]
    fields = [*readonly_fields]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("look/<str:name>/", view(self.look), name="tasks_mcptool_look"),
            path("<path:object_id>/accept/", view(self.accept), name="tasks_mcptool_accept"),
            path("<path:object_id>/withdraw/", view(self.withdraw), name="tasks_mcptool_withdraw"),
        ]
        return own + super().get_urls()

    # ── what is shown ─────────────────────────────────────────────────────────────────────────

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        context = {"declared": list(conf().mcp_servers.values()), "may_change": _may(request)}
        return super().changelist_view(request, {**(extra_context or {}), **context})

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        tool: McpTool = self.row(request, object_id)
        shown = _readable(tool.seen)
        changed = "".join(
            unified_diff(
                _readable(tool.accepted).splitlines(keepends=True),
                shown.splitlines(keepends=True),
                "accepted",
                "now",
            )
        )
        return {
            "may_change": _may(request),
            "diff": diffs.parse(changed, None) if tool.accepted and tool.seen else None,
            "definition": words.visible(shown),
            "problem": told(tool.problem),
            "seen_digest": Definition(text=tool.seen).digest,
            "can_accept": tool.state in (McpTool.State.NEW, McpTool.State.CHANGED),
            "is_declared": _declared(tool) is not None,
        }

    @admin.display(description=later("tool"), ordering="name")
    def tool(self, tool: McpTool) -> str:
        return words.line(tool.name)

    @admin.display(description=later("state"))
    def its_state(self, tool: McpTool) -> SafeString:
        if _declared(tool) is None:
            return badge("gap", "plain", say("not declared any more"))
        return badge(*STATES[tool.state])

    @admin.display(description=later("capability"))
    def capability(self, tool: McpTool) -> str:
        declared = _declared(tool)
        return declared.capability if declared else "-"

    @admin.display(description=later("workspace paths"))
    def paths(self, tool: McpTool) -> str:
        declared = _declared(tool)
        return ", ".join(map(words.line, declared.paths)) if declared and declared.paths else "-"

    @admin.display(description=later("models call it"))
    def offered_as(self, tool: McpTool) -> SafeString | str:
        declared = _declared(tool)
        return format_html("<code>{}</code>", declared.offered_as) if declared else "-"

    @admin.display(description=later("SHA-256 of what was accepted"))
    def digest(self, tool: McpTool) -> SafeString | str:
        if not tool.accepted:
            return "-"
        return format_html("<code>{}</code>", Definition(text=tool.accepted).digest)

    # ── what people do ────────────────────────────────────────────────────────────────────────

    def look(self, request: HttpRequest, name: str) -> HttpResponse:
        """Start the server, or ask it, and keep what it says."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not _may(request):
            raise PermissionDenied
        server = conf().mcp_servers.get(name)
        if server is None:
            raise Http404
        try:
            found = async_to_sync(toolboxes.look)(server)
        except ToolFailed as failure:
            messages.error(request, told(str(failure)))
        else:
            missing = [words.line(tool) for tool in server.tools if tool not in found]
            said = say(
                "The server {name} lists {n} of the declared tools.", name=name, n=len(found)
            )
            if missing:
                said += " " + say("It does not list {tools}.", tools=", ".join(missing))
            messages.success(request, said)
        return HttpResponseRedirect(reverse("admin:tasks_mcptool_changelist"))

    def accept(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Accept exactly the definition that the page showed."""
        return self._changed(
            request,
            object_id,
            lambda tool: servers.accept(tool, request.POST.get("digest", ""), by=by(request)),
        )

    def withdraw(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return self._changed(
            request, object_id, lambda tool: servers.withdraw(tool, by=by(request))
        )

    def _changed(self, request: HttpRequest, object_id: str, change: Any) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        tool = self.row(request, object_id)
        if not _may(request):
            raise PermissionDenied
        try:
            change(tool)
        except ServiceError as refusal:
            messages.error(request, told(refusal.message))
        return HttpResponseRedirect(reverse("admin:tasks_mcptool_change", args=[tool.pk]))


def _may(request: HttpRequest) -> bool:
    """The pages are read-only for Django; this is who may press their buttons."""
    return request.user.has_perm("tasks.change_mcptool")


def _declared(tool: McpTool) -> Any:
    server = conf().mcp_servers.get(tool.server)
    return server.tools.get(tool.name) if server else None


def _readable(definition: str) -> str:
    """One value a line; what is hidden in a text is written out."""
    if not definition:
        return ""
    told = json.loads(definition)
    return words.visible(json.dumps(told, ensure_ascii=False, indent=2)) + "\n"
