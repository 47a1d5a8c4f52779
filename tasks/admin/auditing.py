"""The audit: who changed what, read-only, with its own hash chain."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tasks import audit, exports
from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, by
from tasks.admin.lists import KnownValues
from tasks.api.exports import attachment
from tasks.models import AuditEntry
from tasks.words import later, say

_CHECK = "admin_audit_check"


@admin.register(AuditEntry)
class AuditEntryAdmin(EvidenceAdmin):
    change_list_template = "admin/tasks/auditentry/change_list.html"
    list_display = ["sequence", "created_at", "by", "action", "what", "short_hash"]
    list_filter = [("action", KnownValues), ("object_type", KnownValues)]
    search_fields = ["by", "object_id", "action"]
    search_help_text = later("A user, an action, or the id of what was changed.")
    id_search = "object_id"
    date_hierarchy = "created_at"
    ordering = ["-sequence"]
    readonly_fields = [
        "sequence",
        "created_at",
        "by",
        "action",
        "object_type",
        "object_id",
        "what",
        "before",
        "after",
        "note",
        "hash",
    ]
    fields = [*readonly_fields]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("check/", view(self.check_chain), name="tasks_auditentry_check"),
            path("signed/", view(self.signed), name="tasks_auditentry_signed"),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        ours = {"check": request.session.get(_CHECK), "public_key": exports.public_key()}
        return super().changelist_view(request, {**(extra_context or {}), **ours})

    def check_chain(self, request: HttpRequest) -> HttpResponse:
        """POST: follow the chain now."""
        if request.method == "POST" and self.has_view_permission(request):
            found = audit.verify()
            request.session[_CHECK] = {
                "count": found.sequence,
                "head": words.ends(found.hash),
                "problem": found.problem,
                "at": f"{words.at(timezone.now())} UTC",
            }
        return HttpResponseRedirect(reverse("admin:tasks_auditentry_changelist"))

    def signed(self, request: HttpRequest) -> HttpResponseBase:
        """The whole audit, for somebody who has no key of ours."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return attachment(exports.of_audit(by(request)))

    @admin.display(description=later("what"))
    def what(self, entry: AuditEntry) -> str:
        return words.line(f"{entry.object_type} {_details(entry).get('name', '')}", 120)

    @admin.display(description=later("hash"))
    def short_hash(self, entry: AuditEntry) -> SafeString:
        return format_html('<code title="{}">{}</code>', entry.hash, words.short(entry.hash))

    @admin.display(description=later("before"))
    def before(self, entry: AuditEntry) -> SafeString | str:
        return _values(entry, "before")

    @admin.display(description=later("after"))
    def after(self, entry: AuditEntry) -> SafeString | str:
        return _values(entry, "after")

    @admin.display(description=later("note"))
    def note(self, entry: AuditEntry) -> str:
        return words.visible(str(_details(entry).get("note") or "-"))


def _details(entry: AuditEntry) -> dict[str, Any]:
    """Somebody may have changed the stored text: the page must show the rest all the same."""
    try:
        found = json.loads(entry.details)
    except ValueError:
        return {"note": say("These details cannot be read. Check the chain.")}
    return found if isinstance(found, dict) else {}


def _values(entry: AuditEntry, name: str) -> SafeString | str:
    values = _details(entry).get(name)
    return format_html('<pre class="ph-text">{}</pre>', words.pretty(values)) if values else "-"
