"""Messages about what waits: to whom, when, and what came of it. Read-only."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, badge, link
from tasks.models import Notice
from tasks.told import told
from tasks.words import later

_STATES = {
    "pending": ("hour", "wait", later("To be sent")),
    "sent": ("check", "ok", later("Sent")),
    "failed": ("cross", "fail", later("Given up")),
    "dropped": ("stop", "plain", later("Not needed any more")),
}


@admin.register(Notice)
class NoticeAdmin(EvidenceAdmin):
    list_display = ["created_at", "channel", "address", "state", "reminder", "attempts", "about"]
    list_filter = ["status", "channel"]
    list_select_related = ["approval"]
    search_fields = ["address"]
    search_help_text = later("A mailbox or a host, or the id of a message.")
    date_hierarchy = "created_at"
    readonly_fields = [
        "about",
        "channel",
        "address",
        "user",
        "state",
        "reminder",
        "attempts",
        "created_at",
        "sent_at",
        "next_at",
        "why",
    ]
    fields = [*readonly_fields]

    @admin.display(description=later("state"), ordering="status")
    def state(self, notice: Notice) -> SafeString:
        return badge(*_STATES[notice.status])

    @admin.display(description=later("approval"))
    def about(self, notice: Notice) -> SafeString | str:
        return link(notice.approval)

    @admin.display(description=later("last problem"))
    def why(self, notice: Notice) -> str:
        return words.visible(told(notice.error)) or "-"
