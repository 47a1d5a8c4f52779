"""What schedules and webhooks have in common: their form, and what came of them last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django import forms
from django.db.models import Model, QuerySet, Subquery
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from tasks import access
from tasks.admin import words
from tasks.admin.base import badge
from tasks.admin.tasks import STATES
from tasks.models import MODES
from tasks.told import told
from tasks.words import later, say

if TYPE_CHECKING:
    UnattendedModelForm = forms.ModelForm[Model]
else:
    UnattendedModelForm = forms.ModelForm


def modes() -> list[tuple[str, str]]:
    """To choose from, where a mode can be stricter than the server's."""
    return [("", say("as the server says")), *((mode, say(said)) for mode, said in MODES)]


class UnattendedForm(UnattendedModelForm):
    """Whose tasks they will be, where, and how strict."""

    mode = forms.ChoiceField(
        label=capfirst(later("mode")),
        required=False,
        choices=modes,
        help_text=later("Stricter than the server's mode for unattended tasks, never looser."),
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        owner, workspace = values.get("owner"), values.get("workspace")
        if owner and not owner.is_active:
            self.add_error("owner", say("This user is not active."))
        if owner and workspace:
            usable = access.visible_workspaces(access.principal_of(owner), access.WRITERS)
            if not usable.filter(pk=workspace.pk).exists():
                said = say("{who} may not work in this workspace.", who=owner)
                self.add_error("workspace", said)
        return values


# ── what came of them ─────────────────────────────────────────────────────────────────────────


def with_last_outcome(rows: QuerySet[Any], outcomes: QuerySet[Any]) -> QuerySet[Any]:
    """What came of the last due time or delivery; `outcomes` are a row's, newest first."""
    annotated = rows.annotate(
        last_outcome=Subquery(outcomes.values("outcome")[:1]),
        last_reason=Subquery(outcomes.values("reason")[:1]),
        last_status=Subquery(outcomes.values("task__status")[:1]),
    )
    return cast("QuerySet[Any]", annotated)


def last_outcome(row: Model) -> SafeString | str:
    """The state of the task that was made, or why there was none."""
    found = vars(row)
    if found["last_outcome"] is None:
        return "-"
    if found["last_status"]:
        return badge(*STATES[found["last_status"]])
    outcome = say(found["last_outcome"].capitalize())  # as the choice is called
    return words.line(f"{outcome}: {told(found['last_reason'])}", 120)
