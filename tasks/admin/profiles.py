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

from tasks import profiles, wiring
from tasks.admin.base import FastAdmin
from tasks.models import ModelProfile
from tasks.profiles import NewKey

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[ModelProfile]
else:
    ModelForm = forms.ModelForm  # not generic at run time


class ProfileForm(ModelForm):
    """The profile's fields, and what is to become of its key."""

    new_key = forms.CharField(
        required=False,
        max_length=4000,
        strip=True,
        label="New key",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}, render_value=False),
        help_text="The key itself (stored sealed, never shown again) or env:NAME for a variable "
        "of the server's environment. Empty: the key stays, unless the base URL changes.",
    )
    erase_key = forms.BooleanField(required=False, label="Erase the key")

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
            raise forms.ValidationError(problem)
        return text

    def _post_clean(self) -> None:
        """After the row has the values of the form."""
        super()._post_clean()  # type: ignore[misc] # Django's hook, which its stubs leave out
        if not self.errors:
            for field, problem in profiles.problems(self.instance).items():
                self.add_error(field, problem)

    def key(self) -> NewKey | None:
        if self.cleaned_data["erase_key"]:
            return NewKey(text="")
        text: str = self.cleaned_data["new_key"]
        return NewKey(text=text) if text else None


@admin.register(ModelProfile)
class ModelProfileAdmin(FastAdmin):
    form = ProfileForm
    change_form_template = "admin/profile.html"
    list_display = ["name", "model", "base_url", "the_key", "context_size", "is_default"]
    list_select_related = ["fallback"]
    search_fields = ["name", "model", "base_url"]
    readonly_fields = ["the_key"]
    actions = ["try_out"]
    fieldsets = [
        (None, {"fields": ["name", "base_url", "model", "stream", "is_default"]}),
        ("Key", {"fields": ["the_key", "new_key", "erase_key"]}),
        ("Limits and stand-in", {"fields": ["context_size", "limits", "fallback"]}),
        (
            "Prices per million tokens",
            {"fields": ["price_input", "price_cached", "price_output", "currency"]},
        ),
        ("How its server differs", {"fields": ["options", "quirks"]}),
    ]

    @admin.display(description="key")
    def the_key(self, profile: ModelProfile) -> str:
        return profiles.key_hint(profile)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        profiles.save(obj, by=request.user.get_username(), key=form.key())

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        profiles.delete(obj, by=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for profile in queryset:
            profiles.delete(profile, by=request.user.get_username())

    @admin.action(description="Test the connection", permissions=["change"])
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
            messages.error(request, f"{profile.name}: {missing} {missing.hint}")
            return
        for finding in report.findings:
            level = messages.SUCCESS if finding.ok else messages.ERROR
            messages.add_message(request, level, f"{profile.name}, {finding.what}: {finding.said}")
