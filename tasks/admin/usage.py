"""What models used and cost: the rows, and their sums per day and model for what is filtered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString

from tasks import goals, profiles, usage
from tasks.admin import words
from tasks.admin.base import EvidenceAdmin, link
from tasks.admin.lists import KnownValues
from tasks.models import ModelUsage
from tasks.words import later, say

MAX_SUMS = 100
SUMMED_DAYS = 31


@admin.register(ModelUsage)
class ModelUsageAdmin(EvidenceAdmin):
    change_list_template = "admin/usage.html"
    list_display = [
        *("day", "user", "of_session", "of_task", "model", "calls"),
        *("input_tokens", "cached_tokens", "output_tokens", "the_cost"),
    ]
    list_display_links = None
    list_filter = [("model", KnownValues), "user"]
    list_select_related = ["user", "session", "task"]
    search_fields = ["user__username", "model"]
    search_help_text = later("A user's name, a model, or a session's id.")
    id_search = "session_id"
    date_hierarchy = "day"
    ordering = ["-day", "-id"]

    @admin.display(description=later("session"))
    def of_session(self, row: ModelUsage) -> SafeString | str:
        return link(row.session, words.line(str(row.session), 60))

    @admin.display(description=later("task"))
    def of_task(self, row: ModelUsage) -> SafeString | str:
        return link(row.task, words.line(goals.plain(row.task.goal), 60))

    @admin.display(description=later("cost"), ordering="cost")
    def the_cost(self, row: ModelUsage) -> str:
        return _money(float(row.cost)) if row.priced_calls else "-"

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        response: Any = super().changelist_view(request, extra_context)
        listed = getattr(response, "context_data", {}).get("cl")
        if listed is not None:
            narrow = "day__month" in request.GET
            response.context_data["sums"] = _sums(listed.queryset if narrow else _last_days(listed))
            response.context_data["days"] = None if narrow else SUMMED_DAYS
            response.context_data["currency"] = profiles.currency()
        return response


def _last_days(listed: Any) -> Any:
    """Sums over years take their time: of what is listed, the newest days that have any."""
    newest = listed.queryset.order_by("-day").values_list("day", flat=True).first()
    if newest is None:
        return listed.queryset
    # One by one, so that SQLite looks them up instead of reading everything in the groups' order.
    days = [newest - timedelta(days=back) for back in range(SUMMED_DAYS)]
    return listed.queryset.filter(day__in=days)


def _sums(found: Any) -> list[tuple[Any, ...]]:
    groups = [(*key, sums) for key, sums in usage.by(found, "day", "model")][:MAX_SUMS]
    rows = [(day, model, *_figures(sums)) for day, model, sums in groups]
    return [*rows, (say("all"), "", *_figures(usage.total(found)))]


def _figures(sums: usage.Total) -> tuple[str, ...]:
    """Calls, fresh tokens, cached ones, output, cost; ~ where we had to count."""
    about = "~" if sums.estimated else ""
    counts = (sums.tokens, sums.cached_tokens, sums.output_tokens)
    cost = "-" if sums.cost is None else about + _money(sums.cost)
    return (f"{sums.calls:,}", *(f"{about}{count:,}" for count in counts), cost)


def _money(amount: float) -> str:
    return f"{amount:,.4f}"
