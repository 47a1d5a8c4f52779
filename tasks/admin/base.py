"""What the admin's pages share: evidence can be looked at and not touched, lists stay fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tasks.admin.lists import IndexedQuerySet, ShortPaginator

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin  # not generic at run time


class FastAdmin(ModelAdmin):
    """Lists that count no more rows than they must."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = ShortPaginator
    list_per_page = 50
    sortable_by = ()
    """Only columns with an index of their own."""
    id_search: str = "pk"
    """A search for a UUID is for this field."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        return IndexedQuerySet(rows.model, query=rows.query, using=rows.db)

    class Media:
        css = {"all": ["admin-log/meanings.css", "admin-log/timeline.css", "admin-log/admin.css"]}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        wanted = as_uuid(search_term)
        if wanted is not None and self.search_fields:
            return queryset.filter(**{self.id_search: wanted}), False
        return super().get_search_results(request, queryset, search_term)

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        """What the page of a row shows beside its fields; for its template."""
        return {}

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        ours = self.beside(request, object_id)
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **ours})

    def row(self, request: HttpRequest, object_id: object) -> Any:
        """The row of a page of ours, for whoever may look at it."""
        wanted = as_uuid(object_id)
        found = None if wanted is None else self.get_queryset(request).filter(pk=wanted).first()
        if found is None:
            raise Http404
        if not self.has_view_permission(request, found):
            raise PermissionDenied
        return found


class EvidenceAdmin(FastAdmin):
    """Read-only: nothing is added, changed or deleted here."""

    change_form_template = "admin/evidence.html"
    actions = None

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def by(request: HttpRequest) -> str:
    """Who does it, as the audit names them."""
    return str(request.user.get_username())


def as_uuid(text: object) -> UUID | None:
    try:
        return UUID(str(text).strip())
    except ValueError:
        return None


def link(row: Model | None, text: str | None = None) -> SafeString | str:
    """To a row's page in the admin."""
    if row is None:
        return "-"
    meta = row._meta
    url = reverse(f"admin:{meta.app_label}_{meta.model_name}_change", args=[row.pk])
    return format_html('<a href="{}">{}</a>', url, str(row) if text is None else text)


def listing(model: type[Model], text: str, **filters: object) -> SafeString:
    """To a narrowed list of the admin."""
    meta = model._meta
    url = reverse(
        f"admin:{meta.app_label}_{meta.model_name}_changelist",
        query={name: str(value) for name, value in filters.items()},
    )
    return format_html('<a href="{}">{}</a>', url, text)


def badge(icon: str, tone: str, text: str) -> SafeString:
    """A state by shape first, colour second."""
    return format_html(
        '<span class="ph-state is-{}"><svg class="i" aria-hidden="true"><use href="{}#i-{}"/></svg> {}</span>',
        tone,
        ICONS,
        icon,
        text,
    )


ICONS = "/static/admin-log/icons.svg"
