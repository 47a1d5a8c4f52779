"""Where work happens: sessions and artifacts to look at, workspaces and who may use them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tasks import exports, goals
from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, badge, by, link, listing
from tasks.api.exports import attachment
from tasks.models import Artifact, Session, Task
from tasks.words import later, say


@admin.register(Session)
class SessionAdmin(EvidenceAdmin):
    change_form_template = "admin/tasks/session/change_form.html"
    list_display = [
        "name",
        "owner",
        "the_workspace",
        "place",
        "created_at",
        "updated_at",
    ]
    list_filter = ["archived", "hidden", "workspace"]
    list_select_related = ["owner", "workspace"]
    search_fields = ["title", "owner__username"]
    search_help_text = later("Words of the title, a user's name, or a session's id.")
    date_hierarchy = "created_at"
    ordering = ["-created_at", "-id"]
    readonly_fields = [
        "name",
        "owner",
        "the_workspace",
        "tasks",
        "events",
        "place",
        "forked",
        "created_at",
        "updated_at",
    ]
    fields = [*readonly_fields]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        related = ("owner", "workspace", "forked_from")
        return super().get_queryset(request).select_related(*related)

    def get_urls(self) -> list[URLPattern]:
        signed = self.admin_site.admin_view(self.signed)
        own = [path("<path:object_id>/signed/", signed, name="tasks_session_signed")]
        return own + super().get_urls()

    def signed(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The logs of all its tasks, signed; also of a deleted session."""
        return attachment(exports.of_session(self.row(request, object_id), by(request)))

    @admin.display(description=later("title"), ordering="title")
    def name(self, session: Session) -> str:
        return words.line(str(session))

    @admin.display(description=later("workspace"), ordering="workspace__name")
    def the_workspace(self, session: Session) -> SafeString | str:
        return link(session.workspace, words.line(session.workspace.name))

    @admin.display(description=later("where"))
    def place(self, session: Session) -> SafeString:
        """Deleted is for its people; the log stays."""
        if session.hidden:
            return badge("cross", "plain", say("Deleted"))
        if session.archived:
            return badge("file", "plain", say("In the archive"))
        return badge("check", "plain", say("In the list"))

    @admin.display(description=later("tasks"))
    def tasks(self, session: Session) -> SafeString:
        said = words.count(session.tasks.count(), "{n} task", "{n} tasks")
        return listing(Task, said, session__id__exact=session.pk)

    @admin.display(description=later("events"))
    def events(self, session: Session) -> str:
        """Positions have no gaps, so nobody needs to count."""
        return f"{session.last_position:,}"

    @admin.display(description=later("forked from"))
    def forked(self, session: Session) -> SafeString | str:
        origin = session.forked_from
        if origin is None:
            return "-"
        at = say("event {n}", n=session.forked_at_sequence)
        return format_html("{}, {}", link(origin, say("a task")), at)


@admin.register(Artifact)
class ArtifactAdmin(EvidenceAdmin):
    list_display = ["where", "of_task", "media_type", "size", "created_at"]
    list_select_related = ["task"]
    search_fields = ["path", "sha256"]
    search_help_text = later("A part of the path, a SHA-256, or a task's id.")
    id_search = "task_id"
    date_hierarchy = "created_at"
    ordering = ["-created_at", "-id"]
    readonly_fields = ["where", "of_task", "media_type", "size", "sha256", "created_at"]
    fields = [*readonly_fields]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("task")

    @admin.display(description=later("path"), ordering="path")
    def where(self, artifact: Artifact) -> SafeString:
        return format_html("<code>{}</code>", words.visible(artifact.path))

    @admin.display(description=later("task"))
    def of_task(self, artifact: Artifact) -> SafeString | str:
        return link(artifact.task, words.line(goals.plain(artifact.task.goal), 80))
