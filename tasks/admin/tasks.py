"""Tasks: who asked for what, and the whole log, readable. Evidence: nothing here changes a task."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agent.text import cut
from tasks import chain, events, evidence, exports, goals
from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, badge, by, link
from tasks.admin.lists import worded
from tasks.admin.timeline import KINDS, timeline
from tasks.api.exports import attachment
from tasks.models import Task
from tasks.told import told
from tasks.words import later, say

STATES = {
    "queued": ("queued", "plain", later("Queued")),
    "running": ("run", "run", later("Running")),
    "waiting_approval": ("flag", "wait", later("Waits for a person")),
    "completed": ("check", "ok", later("Done")),
    "failed": ("cross", "fail", later("Failed")),
    "cancelled": ("stop", "plain", later("Stopped")),
    "budget_exceeded": ("gauge", "fail", later("Limit reached")),
}
"""Icon, tone and words of each status."""
EXPORTED = 1000
"""Events per query of an export."""
REMEMBERED = 20
"""Checks of chains that a browser session keeps."""
_CHECKS = "admin_chain_checks"


@admin.register(Task)
class TaskAdmin(EvidenceAdmin):
    change_form_template = "admin/tasks/task/change_form.html"
    list_display = [
        "what",
        "state",
        "asker",
        "place",
        "trigger",
        "created_at",
        "steps",
        "spent",
    ]
    list_filter = [("status", worded(STATES)), "trigger", "workspace"]
    list_select_related = ["created_by", "session__workspace"]
    search_fields = ["goal"]
    search_help_text = later("Words of the goal, or a task's id.")
    date_hierarchy = "created_at"
    ordering = ["-created_at", "-id"]
    readonly_fields = ["the_goal", "asked_by", "outcome", "usage_in_words", "policy", "places"]
    fieldsets = [(later("Who asked for what"), {"fields": [*readonly_fields]})]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        related = ("session__workspace", "created_by", "cancel_requested_by", "follow_up_of")
        return super().get_queryset(request).select_related(*related)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("<path:object_id>/check/", view(self.check_chain), name="tasks_task_check"),
            path("<path:object_id>/export/", view(self.export), name="tasks_task_export"),
            path("<path:object_id>/signed/", view(self.signed), name="tasks_task_signed"),
        ]
        return own + super().get_urls()

    # ── the page of a task ────────────────────────────────────────────────────────────────────

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        task = self.row(request, object_id)
        page = timeline(
            task, before=_number(request.GET.get("before")), show=request.GET.get("show", "")
        )
        return {
            "timeline": page,
            "kinds": [(key, title, page.counts.get(key)) for key, (title, _) in KINDS.items()],
            "subtitle": cut(words.line(goals.plain(task.goal)), 80),
            "check": request.session.get(_CHECKS, {}).get(str(task.pk)),
            "title": say("Task {id}", id=str(task.pk)[:8]),
        }

    def check_chain(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """POST: follow the chain now; the page then says what came of it."""
        task = self.row(request, object_id)
        if request.method == "POST":
            found = chain.verify_task(task.pk)
            rows = [] if found.problem else evidence.problems(task.pk)
            checks = dict(request.session.get(_CHECKS, {}))
            checks.pop(str(task.pk), None)
            checks[str(task.pk)] = {
                "count": found.sequence,
                "head": words.ends(found.hash),
                "problem": found.problem,
                "first_bad": found.sequence + 1,
                "rows": rows[:REMEMBERED],
                "at": f"{words.at(timezone.now())} UTC",
            }
            request.session[_CHECKS] = dict(list(checks.items())[-REMEMBERED:])
        return HttpResponseRedirect(reverse("admin:tasks_task_change", args=[task.pk]) + "#the-log")

    def export(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The log as it is stored, one event per line, with what is needed to check its chain."""
        task = self.row(request, object_id)
        response = StreamingHttpResponse(_lines(task), content_type="application/jsonl")
        response["Content-Disposition"] = f'attachment; filename="task-{task.pk}.jsonl"'
        return response

    def signed(self, request: HttpRequest, object_id: str) -> HttpResponseBase:
        """The same with a signature, for somebody who has no key of ours."""
        return attachment(exports.of_task(self.row(request, object_id), by(request)))

    # ── columns ───────────────────────────────────────────────────────────────────────────────

    @admin.display(description=later("goal"), ordering="goal")
    def what(self, task: Task) -> str:
        return cut(words.line(goals.plain(task.goal)), 90)

    @admin.display(description=later("status"), ordering="status")
    def state(self, task: Task) -> SafeString:
        return badge(*STATES[task.status])

    @admin.display(description=later("asked by"), ordering="created_by__username")
    def asker(self, task: Task) -> str:
        return task.created_by.get_username()

    @admin.display(description=later("workspace"))
    def place(self, task: Task) -> str:
        return words.line(task.session.workspace.name)

    @admin.display(description=later("tokens"))
    def spent(self, task: Task) -> str:
        used = _tokens(task)
        return f"{used:,}" if used else "-"

    # ── fields ────────────────────────────────────────────────────────────────────────────────

    @admin.display(description=later("Goal"))
    def the_goal(self, task: Task) -> SafeString:
        return format_html_join(
            "", "{}", ((_goal_piece(each),) for each in goals.pieces(task.goal))
        )

    @admin.display(description=later("Asked by"))
    def asked_by(self, task: Task) -> SafeString:
        follows = (
            format_html(
                " · {} {}", say("follow-up of"), link(task.follow_up_of, _name(task.follow_up_of))
            )
            if task.follow_up_of is not None
            else ""
        )
        return format_html(
            "{}, {}, {}{}",
            task.created_by.get_username(),
            task.get_trigger_display(),
            _time(task.created_at),
            follows,
        )

    @admin.display(description=later("Status"))
    def outcome(self, task: Task) -> SafeString:
        parts = [badge(*STATES[task.status])]
        if task.finished_at:
            parts.append(format_html("{}", _time(task.finished_at)))
        if task.error:
            parts.append(
                format_html("{}", words.line(told(str(task.error.get("message", ""))), 1000))
            )
        if task.lease_worker and task.status == Task.Status.RUNNING:
            parts.append(format_html("{}", say("worker {name}", name=task.lease_worker)))
        if task.cancel_requested_by:
            stopper = task.cancel_requested_by.get_username()
            parts.append(format_html("{}", say("stop asked by {name}", name=stopper)))
        return format_html_join(" · ", "{}", ((part,) for part in parts))

    @admin.display(description=later("Usage"))
    def usage_in_words(self, task: Task) -> str:
        usage = task.usage
        parts = [
            words.count(task.run, "{n} run", "{n} runs"),
            words.count(task.steps, "{n} step", "{n} steps"),
            say("{tokens} in", tokens=words.tokens(usage.get("input_tokens", 0))),
            say("{tokens} out", tokens=words.tokens(usage.get("output_tokens", 0))),
        ]
        if task.cost is not None:
            parts.append(say("cost {cost}", cost=f"{task.cost:.4f}"))
        return " · ".join(parts)

    @admin.display(description=later("Policy that applied"))
    def policy(self, task: Task) -> SafeString:
        mode = say("Mode asked for: {mode}", mode=task.mode or say("the server's"))
        counted = task.approvals.aggregate(
            asked=Count("pk"), waiting=Count("pk", filter=Q(status="pending"))
        )
        asked = reverse("admin:tasks_approval_changelist", query={"task__id__exact": task.pk})
        return format_html(
            '{} · <a href="{}">{}</a> · <a href="{}">{}</a>',
            mode,
            asked,
            say("{asked} asked, {waiting} waiting", **counted),
            reverse("admin:tasks_approval_policy"),
            say("settings in force"),
        )

    @admin.display(description=later("Belongs to"))
    def places(self, task: Task) -> SafeString:
        return format_html(
            '{} {} · {} {} · <a href="{}">{}</a>',
            say("Session"),
            link(task.session, words.line(str(task.session))),
            say("workspace"),
            link(task.session.workspace, words.line(task.session.workspace.name)),
            reverse("admin:tasks_artifact_changelist", query={"task__id__exact": task.pk}),
            say("artifacts"),
        )


async def _lines(task: Task) -> AsyncIterator[bytes]:
    """Page by page: a long log needs no memory, and no thread while its reader is slow."""
    after = 0
    while rows := await sync_to_async(events.page)(task.pk, after, EXPORTED):
        yield b"".join(exports.line(row) for row in rows)
        after = rows[-1].sequence


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 18 else None


def _tokens(task: Task) -> int:
    return int(task.usage.get("input_tokens", 0)) + int(task.usage.get("output_tokens", 0))


def _name(task: Task) -> str:
    return say("task {id}", id=str(task.pk)[:8])


def _time(at: Any) -> str:
    return words.at(timezone.localtime(at))


def _goal_piece(piece: goals.Piece) -> SafeString:
    text = words.visible(piece.text)
    if not piece.label:
        return format_html('<div class="ph-text">{}</div>', text)
    return format_html('<p class="help">{}</p><pre class="ph-text">{}</pre>', piece.label, text)
