"""Approvals: what waits comes first, the change stands above the buttons, and deciding here is the
same function as in the API. Also the page of the policy settings in force."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tasks import access, decisions, goals
from tasks.admin import diffs, policy, words
from tasks.admin.base import EvidenceAdmin, as_uuid, badge, link, listing
from tasks.admin.lists import worded
from tasks.admin.said import said_risk
from tasks.errors import Conflict, ServiceError
from tasks.models import Approval, Notice
from tasks.pages.decide import reply_of
from tasks.told import told, told_evidence
from tasks.words import later, say
from tasks.writer import WriterUnavailable

STATES = {
    "pending": ("flag", "wait", later("Waits for a person")),
    "approved": ("check", "ok", later("Approved")),
    "rejected": ("cross", "fail", later("Rejected")),
    "expired": ("hour", "fail", later("Expired")),
    "stale": ("retry", "risk", later("Asked again")),
    "cancelled": ("stop", "plain", later("Void")),
}


@admin.register(Approval)
class ApprovalAdmin(EvidenceAdmin):
    change_form_template = "admin/tasks/approval/change_form.html"
    change_list_template = "admin/tasks/approval/change_list.html"
    list_display = ["call", "state", "level", "of_task", "created_at", "expires_at", "decided_by"]
    list_filter = [("status", worded(STATES)), "kind", "task__trigger", "workspace"]
    list_select_related = ["task", "resolved_by"]
    search_fields = ["tool", "task__goal", "task__session__title"]
    search_help_text = later(
        "A tool, words of the task's goal or session, or the id of an approval."
    )
    ordering = ["-waits", "-created_at", "-id"]
    readonly_fields = [
        "call",
        "state",
        "of_task",
        "asked",
        "why",
        "bound_to",
        "said_yes",
        "people_told",
        "decided",
        "the_comment",
    ]
    fieldsets = [(later("What is asked"), {"fields": [*readonly_fields]})]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("task", "resolved_by", "replaced_by")

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Narrowed to a state or a kind, the indexes of those have the newest first."""
        narrowed = request.GET.keys() & {"status__exact", "kind__exact"}
        return list(self.ordering[1:] if narrowed else self.ordering)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("policy/", view(self.policy_page), name="tasks_approval_policy"),
            path("<path:object_id>/decide/", view(self.decide), name="tasks_approval_decide"),
        ]
        return own + super().get_urls()

    # ── pages ─────────────────────────────────────────────────────────────────────────────────

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        approval = self.row(request, object_id)
        return {
            "diff": diffs.parse(told_evidence(approval.diff), limit=None),
            "may_decide": approval.status == Approval.Status.PENDING and may(request, approval),
            "title": say("Approval {id}", id=str(approval.pk)[:8]),
            "subtitle": _sentence(approval),
            "arguments": words.pretty(approval.arguments),
            "standing": words.line(approval.standing, 200),
            "edited": words.pretty(approval.edited_arguments),
        }

    def decide(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """POST: the same decision as in the API, by the same function."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        approval = self.row(request, object_id)
        if not may(request, approval):
            return self._back(
                request, approval, say("You may not decide this approval."), messages.ERROR
            )
        user_id = request.user.pk
        assert user_id is not None  # admin_view lets nobody else in
        try:
            done = async_to_sync(decisions.resolve)(approval.pk, user_id, reply_of(request))
        except ServiceError as refusal:
            return self._refused(request, approval, refusal)
        except WriterUnavailable as trouble:
            said = say("Nothing was decided: {why}", why=told(str(trouble)))
            return self._back(request, approval, said, messages.ERROR)
        said = say("{status}. The task goes on.", status=STATES[done.status][2])
        if done.status == Approval.Status.PENDING:
            said = say("Your yes is noted. One more person must agree.")
        return self._back(request, approval, said, messages.SUCCESS)

    def policy_page(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": say("Policy settings in force"),
            "opts": self.opts,
            **policy.page(),
        }
        return TemplateResponse(request, "admin/policy.html", context)

    def _refused(
        self, request: HttpRequest, approval: Approval, refusal: ServiceError
    ) -> HttpResponse:
        successor = as_uuid((refusal.details or {}).get("approval_id")) if _stale(refusal) else None
        found = Approval.objects.filter(pk=successor).first() if successor else None
        return self._back(request, found or approval, told(refusal.message), messages.WARNING)

    def _back(
        self, request: HttpRequest, approval: Approval, said: str, level: int
    ) -> HttpResponseRedirect:
        self.message_user(request, said, level)
        return HttpResponseRedirect(reverse("admin:tasks_approval_change", args=[approval.pk]))

    # ── columns and fields ────────────────────────────────────────────────────────────────────

    @admin.display(description=later("call"), ordering="tool")
    def call(self, approval: Approval) -> SafeString:
        call = words.call_of(approval.tool, approval.edited_arguments or approval.arguments)
        return format_html("{} <code>{}</code>", call.todo.capitalize(), call.subject)

    @admin.display(description=later("status"), ordering="status")
    def state(self, approval: Approval) -> SafeString:
        return badge(*STATES[approval.status])

    @admin.display(description=later("risk"))
    def level(self, approval: Approval) -> str:
        return said_risk(approval.risk)

    @admin.display(description=later("task"))
    def of_task(self, approval: Approval) -> SafeString | str:
        return link(approval.task, words.line(goals.plain(approval.task.goal), 80))

    @admin.display(description=later("decided by"))
    def decided_by(self, approval: Approval) -> str:
        return approval.resolved_by.get_username() if approval.resolved_by else "-"

    @admin.display(description=later("Asked"))
    def asked(self, approval: Approval) -> str:
        when = f"{words.at(approval.created_at)} UTC"
        if approval.expires_at is None:
            return when
        return when + say(", when silent: reject at {at} UTC", at=f"{approval.expires_at:%H:%M:%S}")

    @admin.display(description=later("Why it asks"))
    def why(self, approval: Approval) -> str:
        parts = [said_risk(approval.risk), words.line(told(approval.reason), 1000)]
        return " · ".join([*parts, words.line(told(approval.rule), 1000)])

    @admin.display(description=later("Bound to"))
    def bound_to(self, approval: Approval) -> SafeString:
        return format_html(
            "{} <code>{}</code> · {} <code>{}</code>",
            say("arguments"),
            words.ends(approval.arguments_digest),
            say("target"),
            words.ends(approval.target_digest),
        )

    @admin.display(description=later("Said yes"))
    def said_yes(self, approval: Approval) -> str:
        """Votes, where two people must agree; the last yes is the decision."""
        said = [
            f"{vote['by']}, {vote['at']}" + (f": “{vote['comment']}”" if vote["comment"] else "")
            for vote in approval.votes
        ]
        return words.visible("\n".join(said)) or "-"

    @admin.display(description=later("People told"))
    def people_told(self, approval: Approval) -> SafeString:
        """Mails and webhooks about it."""
        return listing(Notice, str(approval.messages.count()), approval__id__exact=approval.pk)

    @admin.display(description=later("Decided"))
    def decided(self, approval: Approval) -> SafeString | str:
        if approval.resolved_at is None:
            return say("Not yet. Nothing has been done.")
        after = (
            format_html(
                " · {} {}", say("asked again as"), link(approval.replaced_by, say("this approval"))
            )
            if approval.replaced_by
            else ""
        )
        by = self.decided_by(approval)
        return format_html("{}, {}{}", by, f"{words.at(approval.resolved_at)} UTC", after)

    @admin.display(description=later("Comment"))
    def the_comment(self, approval: Approval) -> SafeString:
        said = " ".join(part for part in (approval.answer, approval.comment) if part)
        return format_html('<div class="ph-text">{}</div>', words.visible(said) or "-")


def _sentence(approval: Approval) -> str:
    call = words.call_of(approval.tool, approval.arguments)
    return f"{call.todo.capitalize()} {call.subject}".strip()


def may(request: HttpRequest, approval: Approval) -> bool:
    """Whether they may decide: seeing the admin's page is not enough."""
    principal = access.principal_of(request.user)  # type: ignore[arg-type] # staff, so not anonymous
    return access.may_decide(approval, principal)


def _stale(refusal: ServiceError) -> bool:
    return isinstance(refusal, Conflict) and refusal.code == "stale"
