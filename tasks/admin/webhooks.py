"""Webhooks: what other programs may have done, what they sent, and a secret that is shown once."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.db.models import OuterRef, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from tasks import webhooks
from tasks.admin import words
from tasks.admin.base import badge, by
from tasks.admin.editing import AuditedAdmin
from tasks.admin.tasks import STATES
from tasks.admin.unattended import UnattendedForm, last_outcome, with_last_outcome
from tasks.conf import conf
from tasks.models import Webhook, WebhookDelivery
from tasks.told import told
from tasks.words import later, say

SHOWN = 50
"""Past deliveries on a webhook's page."""


@admin.register(Webhook)
class WebhookAdmin(AuditedAdmin):
    kind = "webhook"
    form = UnattendedForm
    change_form_template = "admin/tasks/webhook/change_form.html"
    list_display = ["called", "owner", "workspace", "state", "last_delivery"]
    list_filter = ["enabled", "workspace"]
    list_select_related = ["owner", "workspace"]
    search_fields = ["name", "goal", "owner__username"]
    search_help_text = later("A name, words of the goal, an owner, or a webhook's id.")
    autocomplete_fields = ["owner", "workspace"]
    fields = ["name", "owner", "workspace", "goal", "model_profile", "mode", "enabled"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        last = WebhookDelivery.objects.filter(webhook=OuterRef("pk")).order_by("-created_at")
        rows = super().get_queryset(request).select_related("owner", "workspace")
        return with_last_outcome(rows, last)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.renew_secret)
        own = [path("<uuid:object_id>/secret/", view, name="tasks_webhook_secret")]
        return own + super().get_urls()

    def beside(self, request: HttpRequest, object_id: str) -> dict[str, Any]:
        webhook = self.row(request, object_id)
        deliveries = webhook.deliveries.select_related("task")[:SHOWN]
        return {
            "deliveries": [(each, _result(each)) for each in deliveries],
            "address": _address(webhook),
            "may_renew": self.has_change_permission(request, webhook),
        }

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if obj.enabled:
            obj.paused_reason = ""
        super().save_model(request, obj, form, change)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Without a secret it would take nothing: the first one comes with it."""
        return self._with_new_secret(request, obj)

    def renew_secret(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """POST: the answer is the only page that shows the new one. The admin lets none be kept."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        webhook = self.row(request, object_id)
        if not self.has_change_permission(request, webhook):
            self.message_user(request, say("You may not change this webhook."), messages.ERROR)
            return HttpResponseRedirect(reverse("admin:tasks_webhook_change", args=[webhook.pk]))
        return self._with_new_secret(request, webhook)

    def _with_new_secret(self, request: HttpRequest, webhook: Webhook) -> HttpResponse:
        page = {
            **self.admin_site.each_context(request),
            "title": say("The secret of this webhook"),
            "opts": self.opts,
            "webhook": webhook,
            "address": _address(webhook),
            "secret": webhooks.renew_secret(webhook, by(request)),
        }
        return TemplateResponse(request, "admin/tasks/webhook/secret.html", page)

    @admin.display(description=later("name"), ordering="name")
    def called(self, webhook: Webhook) -> str:
        return words.line(webhook.name)

    @admin.display(description=later("state"), ordering="enabled")
    def state(self, webhook: Webhook) -> SafeString:
        if not webhook.enabled:
            if webhook.paused_reason:
                return badge("flag", "wait", say("Paused: {why}", why=told(webhook.paused_reason)))
            return badge("stop", "plain", say("Off"))
        if not webhook.secret:
            return badge("stop", "plain", say("No secret"))
        return badge("check", "ok", say("On"))

    @admin.display(description=later("last delivery"))
    def last_delivery(self, webhook: Webhook) -> SafeString | str:
        return last_outcome(webhook)


def _address(webhook: Webhook) -> str:
    return f"{conf().public_url.rstrip('/')}/api/webhooks/{webhook.pk}"


def _result(delivery: WebhookDelivery) -> SafeString | str:
    if delivery.task is not None:
        return badge(*STATES[delivery.task.status])
    return words.line(f"{delivery.get_outcome_display()}: {told(delivery.reason)}")
