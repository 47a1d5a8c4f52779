"""Workspaces and who may use them; API tokens, whose hash nobody sees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString

from tasks import access, members, workspaces
from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, badge
from tasks.admin.editing import AuditedAdmin
from tasks.conf import conf
from tasks.errors import Invalid
from tasks.models import ApiToken, Member, Workspace
from tasks.told import told
from tasks.words import later, say

if TYPE_CHECKING:
    WorkspaceModelForm = forms.ModelForm[Workspace]
    MemberRows = admin.TabularInline[Member, Workspace]
else:
    WorkspaceModelForm = forms.ModelForm
    MemberRows = admin.TabularInline


class WorkspaceForm(WorkspaceModelForm):
    """A new root passes the checks of `tasks.workspaces`; an old one never changes."""

    anywhere = False
    """Administrators may register a folder outside the workspaces folder."""
    mcp_servers = forms.MultipleChoiceField(
        required=False,
        label=later("MCP servers"),
        choices=lambda: [(name, name) for name in conf().mcp_servers],
        widget=forms.CheckboxSelectMultiple,
        help_text=later("That its tasks may use, of those in PILOTHOUSE_MCP_SERVERS."),
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        if self.instance._state.adding:
            self._check_new(values)
        elif self._renamed_to_a_taken_name(values):
            self.add_error("name", say("There is a workspace with this name already."))
        return values

    def _check_new(self, values: dict[str, Any]) -> None:
        root, owner, name = values.get("root"), values.get("owner"), values.get("name")
        if not (root and owner and name):
            return
        try:
            real = workspaces.checked_root(owner, name, root, anywhere=self.anywhere)
        except Invalid as invalid:
            where = "name" if invalid.code == "workspace_name" else "root"
            self.add_error(where, told(invalid.message))
        else:
            values["root"] = str(real)

    def _renamed_to_a_taken_name(self, values: dict[str, Any]) -> bool:
        """The owner is not a field of this form, so the form does not check it by itself."""
        others = Workspace.objects.filter(owner_id=self.instance.owner_id, name=values.get("name"))
        return others.exclude(pk=self.instance.pk).exists()


class MemberInline(MemberRows):
    model = Member
    extra = 0
    autocomplete_fields = ["user"]


@admin.register(Workspace)
class WorkspaceAdmin(AuditedAdmin):
    kind = "workspace"
    form = WorkspaceForm
    inlines = [MemberInline]
    list_display = ["called", "owner", "root", "member_count", "created_at"]
    list_select_related = ["owner"]
    search_fields = ["name", "root", "owner__username"]
    search_help_text = later("A name, a folder, an owner, or a workspace's id.")
    date_hierarchy = "created_at"
    autocomplete_fields = ["owner"]
    fields = ["name", "owner", "root", "mode", "instructions", "mcp_servers"]

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        super().save_formset(request, form, formset, change)
        members.reclaim(form.instance, request.user.get_username())

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request).select_related("owner")
        return cast("QuerySet[Any]", rows.annotate(number_of_members=Count("members")))

    def get_form(self, request: HttpRequest, *args: Any, **options: Any) -> Any:
        form: Any = super().get_form(request, *args, **options)
        form.anywhere = bool(request.user.is_superuser)
        return form

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Sessions and their evidence point at the folder and its owner."""
        return [] if obj is None else ["root", "owner"]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.display(description=later("name"), ordering="name")
    def called(self, workspace: Workspace) -> str:
        return words.line(workspace.name)

    @admin.display(description=later("members"))
    def member_count(self, workspace: Workspace) -> int:
        return int(vars(workspace)["number_of_members"])


_TOKEN_COLUMNS = (
    "shown",
    "user",
    "state",
    "what_for",
    "created_at",
    "expires_at",
    "last_used_at",
)


@admin.register(ApiToken)
class ApiTokenAdmin(EvidenceAdmin):
    """Made by their owners, over the API or by `create_token`; here they can be revoked."""

    change_form_template = "admin/tasks/apitoken/change_form.html"
    list_display = _TOKEN_COLUMNS
    list_filter = ["user", ("revoked_at", admin.EmptyFieldListFilter)]
    list_select_related = ["user"]
    search_fields = ["name", "prefix", "user__username"]
    readonly_fields = [*_TOKEN_COLUMNS, "revoked_at"]
    fields = [*readonly_fields]

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [path("<int:token_id>/revoke/", view(self.revoke), name="tasks_apitoken_revoke")]
        return own + super().get_urls()

    def may_revoke(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("tasks.change_apitoken"))

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        return {"may_revoke": self.may_revoke(request)}

    def revoke(self, request: HttpRequest, token_id: int) -> HttpResponse:
        """POST: from the next request on nobody gets in with it."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        get_object_or_404(ApiToken, pk=token_id)
        if not self.may_revoke(request):
            self.message_user(request, say("You may not revoke tokens."), messages.ERROR)
        elif access.revoke_token(token_id, request.user.get_username()):
            self.message_user(request, say("The token is revoked."), messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:tasks_apitoken_change", args=[token_id]))

    @admin.display(description=later("token"), ordering="prefix")
    def shown(self, token: ApiToken) -> str:
        return words.line(str(token))

    @admin.display(description=later("state"))
    def state(self, token: ApiToken) -> SafeString:
        if token.revoked_at:
            return badge("deny", "plain", say("Revoked"))
        if token.expires_at and token.expires_at <= timezone.now():
            return badge("hour", "plain", say("Expired"))
        return badge("check", "ok", say("Good"))

    @admin.display(description=later("scopes"))
    def what_for(self, token: ApiToken) -> str:
        return ", ".join(token.scopes)
