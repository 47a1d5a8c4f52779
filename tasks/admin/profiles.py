"""Model profiles: who may change them changes them here, and tries them with a button.

The key can be entered and erased, never read: the page does not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync
from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import resolve, reverse
from django.utils.safestring import SafeString

from tasks import profiles, wiring
from tasks.admin.base import FastAdmin, badge
from tasks.models import ModelProfile
from tasks.profiles import NewKey
from tasks.told import told
from tasks.words import later, say

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[ModelProfile]
else:
    ModelForm = forms.ModelForm  # not generic at run time


_HINTS = {"none": later("none"), "set, not shown": later("set, not shown")}
"""Else it is `env:NAME`."""


class ProfileForm(ModelForm):
    """The profile's fields, and what is to become of its key."""

    new_key = forms.CharField(
        required=False,
        max_length=4000,
        strip=True,
        label=later("New key"),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
        help_text=later(
            "The key itself (stored sealed, never shown again) or env:NAME for a variable "
            "of the server's environment. Empty: the key stays, unless the base URL changes."
        ),
    )
    erase_key = forms.BooleanField(required=False, label=later("Erase the key"))

    class Meta:
        model = ModelProfile
        fields = (
            *("name", "base_url", "model", "stream", "is_default", "context_size", "limits"),
            *("fallback", "price_input", "price_cached", "price_output", "currency"),
            *("options", "quirks"),
        )

    def clean_new_key(self) -> str:
        text: str = self.cleaned_data["new_key"]
        problem = profiles.key_problem(text)
        if problem:
            raise forms.ValidationError(told(problem))
        return text

    def _post_clean(self) -> None:
        """After the row has the values of the form."""
        super()._post_clean()  # type: ignore[misc] # Django's hook, which its stubs leave out
        if not self.errors:
            for field, problem in profiles.problems(self.instance).items():
                self.add_error(field, told(problem))

    def key(self) -> NewKey | None:
        if self.cleaned_data["erase_key"]:
            return NewKey(text="")
        text: str = self.cleaned_data["new_key"]
        return NewKey(text=text) if text else None


@admin.register(ModelProfile)
class ModelProfileAdmin(FastAdmin):
    form = ProfileForm
    change_form_template = "admin/profile.html"
    list_display = ["name", "model", "base_url", "the_key", "context_size", "first"]
    list_select_related = ["fallback"]
    search_fields = ["name", "model", "base_url"]
    readonly_fields = ["the_key"]
    actions = ["try_out"]
    fieldsets = [
        (None, {"fields": ["name", "base_url", "model", "stream", "is_default"]}),
        (later("Key"), {"fields": ["the_key", "new_key", "erase_key"]}),
        (later("Limits and stand-in"), {"fields": ["context_size", "limits", "fallback"]}),
        (
            later("Prices per million tokens"),
            {"fields": ["price_input", "price_cached", "price_output", "currency"]},
        ),
        (later("How its server differs"), {"fields": ["options", "quirks"]}),
    ]

    @admin.display(description=later("is default"), ordering="is_default")
    def first(self, profile: ModelProfile) -> SafeString | str:
        return badge("check", "ok", say("is default")) if profile.is_default else "-"

    @admin.display(description=later("key"))
    def the_key(self, profile: ModelProfile) -> str:
        hint = profiles.key_hint(profile)
        return str(_HINTS.get(hint, hint))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        profiles.save(obj, by=request.user.get_username(), key=form.key())

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        profiles.delete(obj, by=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for profile in queryset:
            profiles.delete(profile, by=request.user.get_username())

    @admin.action(description=later("Test the connection"), permissions=["change"])
    def try_out(self, request: HttpRequest, queryset: Any) -> None:
        for profile in queryset[:5]:
            self._try_out(request, profile)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        if "_try" not in request.POST:
            return super().response_add(request, obj, post_url_continue)
        return HttpResponseRedirect(reverse("admin:tasks_modelprofile_change", args=[obj.pk]))

    def response_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        if "_try" not in request.POST:
            return super().response_change(request, obj)
        return HttpResponseRedirect(request.get_full_path())

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        response = super().changeform_view(request, object_id, *args, **kwargs)
        if isinstance(response, HttpResponseRedirect) and "_try" in request.POST:
            # Only now: Django saves in a transaction, and a talk must not hold the database.
            saved = object_id or resolve(response.url).kwargs["object_id"]
            self._try_out(request, ModelProfile.objects.get(pk=saved))
        return response

    def _try_out(self, request: HttpRequest, profile: ModelProfile) -> None:
        try:
            report = async_to_sync(wiring.try_out)(profile)
        except wiring.NoModel as missing:
            messages.error(request, f"{profile.name}: {told(str(missing))} {told(missing.hint)}")
            return
        for finding in report.findings:
            level = messages.SUCCESS if finding.ok else messages.ERROR
            said = f"{profile.name}, {told(finding.what)}: {told(finding.said)}"
            messages.add_message(request, level, said)
