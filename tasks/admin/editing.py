"""Pages on which people may change something: every change is audited in its own transaction."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model, QuerySet
from django.forms import BaseInlineFormSet, ModelForm
from django.http import HttpRequest

from tasks import audit
from tasks.admin.base import FastAdmin


class AuditedAdmin(FastAdmin):
    """The admin saves and deletes inside a transaction: the entry stands or falls with it."""

    actions = None
    kind: str
    """`object_type` in the audit."""

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        names = form.changed_data if change else list(form.cleaned_data)
        if change and not names:
            return
        self.note(
            request,
            "changed" if change else "made",
            obj,
            before=_initial(form, names) if change else {},
            after={name: _plain(form.cleaned_data.get(name)) for name in names},
        )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        pk = obj.pk
        before = {f.name: _plain(getattr(obj, f.attname)) for f in obj._meta.concrete_fields}
        super().delete_model(request, obj)
        obj.pk = pk
        self.note(request, "deleted", obj, before=before)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        stored = {each.pk: _row(each) for each in _stored(formset)} if change else {}
        # Deleting takes its key from a row: what it was is kept by the row itself.
        before = {id(each.instance): stored.get(each.instance.pk, {}) for each in formset.forms}
        super().save_formset(request, form, formset, change)
        for verb, row in _changes(formset):
            self.note(
                request,
                f"{formset.model._meta.model_name}_{verb}",
                form.instance,
                before=before.get(id(row), {}) if verb != "added" else {},
                after=_row(row) if verb != "removed" else {},
            )

    def note(
        self,
        request: HttpRequest,
        verb: str,
        obj: Model,
        *,
        before: dict[str, Any] | None = None,
        after: dict[str, Any] | None = None,
    ) -> None:
        audit.note(
            audit.Change(
                action=f"{self.kind}.{verb}",
                by=request.user.get_username(),
                object_type=self.kind,
                object_id=str(obj.pk),
                name=str(obj),
                before=before or {},
                after=after or {},
            )
        )


def _stored(formset: BaseInlineFormSet[Any, Any, Any]) -> Iterable[Model]:
    return list(formset.get_queryset().model._default_manager.filter(**_owner(formset)))


def _owner(formset: BaseInlineFormSet[Any, Any, Any]) -> dict[str, Any]:
    return {formset.fk.name: formset.instance.pk}


def _changes(formset: Any) -> list[tuple[str, Model]]:
    added = [("added", row) for row in formset.new_objects]
    changed = [("changed", row) for row, _ in formset.changed_objects]
    return [*added, *changed, *(("removed", row) for row in formset.deleted_objects)]


def _initial(form: ModelForm[Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: _plain(form.get_initial_for_field(form.fields[name], name)) for name in names}


def _row(row: Model) -> dict[str, Any]:
    return {field.name: _plain(getattr(row, field.attname)) for field in row._meta.concrete_fields}


def _plain(value: Any) -> Any:
    if isinstance(value, QuerySet | list | tuple):
        return sorted(str(each) for each in value)
    return str(value.pk) if isinstance(value, Model) else value
