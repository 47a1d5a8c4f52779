"""Policy rules: written by administrators, left by cards; and what they would do to a call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.safestring import SafeString

from agent import patterns
from tasks import explaining, rules, toolboxes
from tasks.admin import words
from tasks.admin.base import badge, link
from tasks.admin.editing import AuditedAdmin
from tasks.admin.unattended import modes
from tasks.explaining import Question, Replayed, RuleSet
from tasks.models import PolicyRule, Task, Workspace
from tasks.words import later, say

REPLAYED = 50
"""Tasks whose calls are judged again on the page."""
PATTERNS = ("capability", "tool", "path", "host", "command")

if TYPE_CHECKING:
    RuleModelForm = forms.ModelForm[PolicyRule]
    WorkspaceChoice = forms.ModelChoiceField[Workspace]
    RuleChoice = forms.ModelChoiceField[PolicyRule]
else:
    RuleModelForm = forms.ModelForm
    WorkspaceChoice = RuleChoice = forms.ModelChoiceField


class RuleForm(RuleModelForm):
    class Meta:
        model = PolicyRule
        fields = (
            *("note", "decision", "scope", "workspace", "session", "task"),
            *(*PATTERNS, "priority", "final", "expires_at", "max_uses", "enabled"),
        )
        help_texts = {
            "note": later("What people read where this rule decided."),
            "scope": later("Where it counts; choose the one place below, or none for global."),
            "capability": later(
                "e.g. file:write or file:*. Empty fits everything, here and below."
            ),
            "tool": later("e.g. write_file"),
            "path": later("In the workspace, links resolved: reports/ with all below, or **/*.md."),
            "host": later("e.g. example.com or *.example.com"),
            "command": later(
                "Words of each command of a line; a last ** for any more: git log **."
            ),
            "priority": later("Higher is looked at first. A rule that denies always comes first."),
            "final": later(
                "Decides over every other rule but one that denies; only of a global rule."
            ),
            "max_uses": later("How many calls it may allow; empty: any number."),
        }

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        self._check_place(values)
        if values.get("final") and values.get("scope") != PolicyRule.Scope.GLOBAL:
            self.add_error("final", say("Only a global rule can be final."))
        for name in PATTERNS:
            try:
                values[name] = patterns.tidied(name, values.get(name) or "")
            except ValueError as problem:
                self.add_error(name, str(problem))
        return values

    def _check_place(self, values: dict[str, Any]) -> None:
        scope = values.get("scope")
        for name in ("workspace", "session", "task"):
            if name == scope and not values.get(name):
                self.add_error(name, say("Say which {place}.", place=say(name)))
            elif name != scope and values.get(name):
                said = say(
                    "A {scope} rule has no {place}.", scope=say(scope or ""), place=say(name)
                )
                self.add_error(name, said)


class ExplainForm(forms.Form):
    """What would happen to this call?"""

    workspace = WorkspaceChoice(Workspace.objects.all(), label=later("Workspace"))
    tool = forms.ChoiceField(
        label=later("Tool"), choices=lambda: [(name, name) for name in toolboxes.toolbox().names]
    )
    arguments = forms.CharField(
        label=later("Arguments"),
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        initial='{"path": "notes.md"}',
    )
    trigger = forms.ChoiceField(
        label=later("Trigger"),
        choices=lambda: Task._meta.get_field("trigger").choices or [],
        initial=Task.Trigger.CHAT,
    )
    mode = forms.ChoiceField(
        label=later("Mode"),
        choices=modes,
        required=False,
    )
    draft = RuleChoice(
        PolicyRule.objects.filter(enabled=False),
        required=False,
        label=later("Count this rule, too"),
        help_text=later("A rule that is switched off, to see what it would do."),
    )

    def clean_arguments(self) -> dict[str, Any]:
        try:
            arguments = json.loads(self.cleaned_data["arguments"])
        except ValueError:
            raise forms.ValidationError(say("This is not JSON.")) from None
        if not isinstance(arguments, dict):
            raise forms.ValidationError(say("The arguments are a JSON object."))
        return cast("dict[str, Any]", arguments)

    def rule_set(self) -> RuleSet:
        draft = self.cleaned_data.get("draft")
        return RuleSet(extra=[rules.as_rule(draft)] if draft else ())

    def question(self) -> Question:
        asked = self.cleaned_data
        return Question(
            workspace=asked["workspace"],
            tool=asked["tool"],
            arguments=asked["arguments"],
            trigger=asked["trigger"],
            mode=asked["mode"],
        )


@admin.register(PolicyRule)
class PolicyRuleAdmin(AuditedAdmin):
    kind = "rule"
    form = RuleForm
    change_list_template = "admin/tasks/policyrule/change_list.html"
    list_display = ["called", "verdict", "place", "fits", "priority", "uses", "state", "made"]
    list_filter = ["decision", "scope", "enabled"]
    list_select_related = ["workspace", "session", "task", "made_by", "made_from"]
    search_fields = ["note", "tool", "path", "host", "command", "made_by__username"]
    search_help_text = later("Words of the note, a pattern, who made it, or a rule's id.")
    autocomplete_fields = ["workspace"]
    raw_id_fields = ["session", "task"]
    readonly_fields = ["origin", "uses"]
    fieldsets = [
        (None, {"fields": ["note", "decision", "enabled"]}),
        (later("Where it counts"), {"fields": ["scope", "workspace", "session", "task"]}),
        (later("Which calls it fits"), {"fields": [*PATTERNS]}),
        (
            later("Rank and end"),
            {"fields": ["priority", "final", "expires_at", "max_uses", "uses"]},
        ),
        (later("Origin"), {"fields": ["origin"]}),
    ]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.explain)
        return [path("explain/", view, name="tasks_policyrule_explain"), *super().get_urls()]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """What a card left says what the card said; it can be switched off, not rewritten."""
        own = list(self.readonly_fields)
        if obj is None or obj.made_from_id is None:
            return own
        return [*own, *(name for name in RuleForm.Meta.fields if name != "enabled")]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """One right for writing rules, new or old."""
        return self.has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Events name rules: they are switched off, and stay."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if not change:
            obj.made_by = request.user
        super().save_model(request, obj, form, change)
        rules.changed()

    def explain(self, request: HttpRequest) -> HttpResponse:
        """GET with a question in the address: it changes nothing and can be kept as a link."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = ExplainForm(request.GET or None)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": say("What would happen to this call?"),
            "opts": self.opts,
            "form": form,
        }
        if request.GET and form.is_valid():
            context |= _answer(form, replay="replay" in request.GET)
        return TemplateResponse(request, "admin/tasks/policyrule/explain.html", context)

    # ── columns and fields ────────────────────────────────────────────────────────────────────

    @admin.display(description=later("rule"), ordering="note")
    def called(self, rule: PolicyRule) -> str:
        return words.line(str(rule))

    @admin.display(description=later("decision"), ordering="decision")
    def verdict(self, rule: PolicyRule) -> SafeString:
        return badge(*VERDICTS[rule.decision])

    @admin.display(description=later("where"))
    def place(self, rule: PolicyRule) -> SafeString | str:
        found = rule.workspace or rule.session or rule.task
        return say("everywhere") if found is None else link(found, words.line(str(found), 60))

    @admin.display(description=later("fits"))
    def fits(self, rule: PolicyRule) -> str:
        parts = [f"{say(name)} {value}" for name in PATTERNS if (value := getattr(rule, name))]
        if rule.digest:
            parts.append(say("exactly one call"))
        return words.line(", ".join(parts), 200) or say("every call")

    @admin.display(description=later("uses"))
    def uses(self, rule: PolicyRule) -> str:
        if rule.max_uses is None:
            return say("not counted")
        return say("{used} of {limit}", used=rule.used, limit=rule.max_uses)

    @admin.display(description=later("state"))
    def state(self, rule: PolicyRule) -> SafeString:
        return badge(*_state(rule))

    @admin.display(description=later("made by"), ordering="created_at")
    def made(self, rule: PolicyRule) -> str:
        who = rule.made_by.get_username()
        return say("{who}, on a card", who=who) if rule.made_from_id else who

    @admin.display(description=later("Made"))
    def origin(self, rule: PolicyRule) -> SafeString | str:
        if rule._state.adding:
            return "-"
        told = {
            "when": f"{words.to_the_minute(rule.created_at)} UTC",
            "who": words.line(rule.made_by.get_username()),
        }
        if rule.made_from is None:
            return say("{when} by {who}, in the admin", **told)
        return link(rule.made_from, say("{when} by {who}, answering this approval", **told))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        related = self.list_select_related
        return super().get_queryset(request).select_related(*related)


VERDICTS = {
    "allow": ("check", "ok", later("allow")),
    "ask": ("hour", "wait", later("ask")),
    "deny": ("deny", "risk", later("deny")),
}


def _state(rule: PolicyRule) -> tuple[str, str, str]:
    if not rule.enabled:
        return "stop", "plain", say("off")
    if rule.expires_at is not None and rule.expires_at <= timezone.now():
        return "clock", "plain", say("run out")
    if rule.max_uses is not None and rule.used >= rule.max_uses:
        return "check", "plain", say("used up")
    return "check", "ok", say("counts")


def _answer(form: ExplainForm, *, replay: bool) -> dict[str, Any]:
    rule_set = form.rule_set()
    if not replay:
        return {"found": async_to_sync(explaining.explain)(form.question(), rule_set)}
    workspace = form.cleaned_data["workspace"]
    tasks = explaining.latest_tasks(REPLAYED, session__workspace=workspace)
    calls = async_to_sync(_replayed)(tasks, rule_set)
    changes = [(call, _call(call)) for call in calls if call.differs]
    return {"replayed": {"tasks": len(tasks), "calls": len(calls), "changes": changes}}


def _call(call: Replayed) -> str:
    said = words.call_of(call.tool, dict(call.arguments))
    return f"{said.todo} {said.subject}"


async def _replayed(tasks: list[Task], rule_set: RuleSet) -> list[Replayed]:
    return [call async for call in explaining.replay(tasks, rule_set)]
