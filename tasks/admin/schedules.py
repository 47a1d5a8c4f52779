"""Schedules: when each is due next, what came of the last due times, run now."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from tasks import schedules
from tasks.admin import words
from tasks.admin.base import badge
from tasks.admin.editing import AuditedAdmin
from tasks.admin.tasks import STATES
from tasks.admin.unattended import UnattendedForm, last_outcome, with_last_outcome
from tasks.errors import Invalid, ServiceError
from tasks.models import Schedule, ScheduleTick
from tasks.told import told
from tasks.words import later, say
from tasks.writer import WriterUnavailable

TICKS = 50
"""Past due times on a schedule's page."""


class ScheduleForm(UnattendedForm):
    time_zone = forms.CharField(
        label=capfirst(later("time zone")),
        max_length=64,
        initial="UTC",
        help_text=later("e.g. UTC or Europe/Berlin"),
    )
    cron = forms.CharField(
        label=capfirst(later("cron")),
        max_length=1000,
        strip=False,
        help_text=later(
            "Minute, hour, day of month, month, day of week: 0 7 * * 1-5 is 07:00 on workdays."
        ),
    )

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        if "cron" not in values or "time_zone" not in values:
            return values
        try:
            line = schedules.parse(values["cron"], values["time_zone"])
        except Invalid as invalid:
            where = "time_zone" if invalid.code == "time_zone" else "cron"
            self.add_error(where, told(invalid.message))
        else:
            values["cron"] = line.line
        return values


@admin.register(Schedule)
class ScheduleAdmin(AuditedAdmin):
    kind = "schedule"
    form = ScheduleForm
    change_form_template = "admin/tasks/schedule/change_form.html"
    list_display = ["called", "owner", "line", "time_zone", "state", "next_due", "last_result"]
    list_filter = ["enabled", "workspace"]
    list_select_related = ["owner", "workspace"]
    search_fields = ["name", "goal", "owner__username"]
    search_help_text = later("A name, words of the goal, an owner, or a schedule's id.")
    autocomplete_fields = ["owner", "workspace"]
    fields = ["name", "owner", "workspace", "goal", "cron", "time_zone", "mode", "enabled"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        last = ScheduleTick.objects.filter(schedule=OuterRef("pk")).order_by("-due_at")
        rows = super().get_queryset(request).select_related("owner", "workspace", "session")
        return with_last_outcome(rows, last)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [path("<uuid:object_id>/run/", view(self.run_now), name="tasks_schedule_run")]
        return own + super().get_urls()

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        schedule = self.row(request, object_id)
        ticks = schedule.ticks.select_related("task").order_by("-due_at")[:TICKS]
        return {
            "ticks": [(tick, _result(tick)) for tick in ticks],
            "upcoming": _upcoming(schedule),
            "may_run": self.has_change_permission(request, schedule),
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        schedules.plan(obj)
        super().save_model(request, obj, form, change)

    def run_now(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """POST: one task at once, by the same rules."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        schedule = self.row(request, object_id)
        here = HttpResponseRedirect(reverse("admin:tasks_schedule_change", args=[schedule.pk]))
        if not self.has_change_permission(request, schedule):
            self.message_user(request, say("You may not run this schedule."), messages.ERROR)
            return here
        try:
            tick = schedules.run_now(schedule.pk, request.user.get_username())
        except (ServiceError, WriterUnavailable) as refusal:
            self.message_user(
                request, say("No task was made: {why}", why=told(str(refusal))), messages.ERROR
            )
            return here
        if tick.task_id is None:
            self.message_user(
                request, say("No task was made: {why}", why=told(tick.reason)), messages.WARNING
            )
        else:
            self.message_user(request, say("Its task is made."), messages.SUCCESS)
        return here

    @admin.display(description=later("name"), ordering="name")
    def called(self, schedule: Schedule) -> str:
        return words.line(schedule.name)

    @admin.display(description=later("cron"), ordering="cron")
    def line(self, schedule: Schedule) -> str:
        return schedule.cron

    @admin.display(description=later("state"), ordering="enabled")
    def state(self, schedule: Schedule) -> SafeString:
        if schedule.enabled:
            return badge("clock", "run", say("On"))
        if schedule.paused_reason:
            return badge("flag", "wait", say("Paused: {why}", why=told(schedule.paused_reason)))
        return badge("stop", "plain", say("Off"))

    @admin.display(description=later("next run"), ordering="next_due_at")
    def next_due(self, schedule: Schedule) -> str:
        return f"{words.to_the_minute(schedule.next_due_at)} UTC" if schedule.next_due_at else "-"

    @admin.display(description=later("last result"))
    def last_result(self, schedule: Schedule) -> SafeString | str:
        return last_outcome(schedule)


def _upcoming(schedule: Schedule) -> str:
    try:
        coming = schedules.previewed(schedule)
    except Invalid as invalid:
        return told(invalid.message)
    if not coming:
        return say("None: it is switched off.")
    return " · ".join(f"{date_format(due, say('D d M Y H:i'))} UTC" for due in coming)


def _result(tick: ScheduleTick) -> SafeString | str:
    if tick.task is not None:
        return badge(*STATES[tick.task.status])
    if not tick.reason:
        return say("Claimed")
    return words.line(f"{tick.get_outcome_display()}: {told(tick.reason)}")
