"""The form of what begins tasks while nobody is there: schedules and webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Model

from tasks import access
from tasks.models import MODES

if TYPE_CHECKING:
    UnattendedModelForm = forms.ModelForm[Model]
else:
    UnattendedModelForm = forms.ModelForm


class UnattendedForm(UnattendedModelForm):
    """Whose tasks they will be, where, and how strict."""

    mode = forms.ChoiceField(
        required=False,
        choices=[("", "as the server says"), *MODES],
        help_text="Stricter than the server's mode for unattended tasks, never looser.",
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        owner, workspace = values.get("owner"), values.get("workspace")
        if owner and not owner.is_active:
            self.add_error("owner", "This user is not active.")
        if owner and workspace:
            usable = access.visible_workspaces(access.principal_of(owner), access.WRITERS)
            if not usable.filter(pk=workspace.pk).exists():
                self.add_error("workspace", f"{owner} may not work in this workspace.")
        return values
