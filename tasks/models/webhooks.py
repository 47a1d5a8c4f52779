"""Goals that other programs ask for."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from tasks.models.columns import MODES
from tasks.models.places import Workspace
from tasks.models.profiles import ModelProfile
from tasks.models.work import Task


class Webhook(models.Model):
    """A goal that other programs ask for; what they send is data for it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="webhooks"
    )
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="webhooks")
    name = models.CharField(max_length=100)
    goal = models.TextField(max_length=8000)
    """What is to be done with what is delivered."""
    mode = models.CharField(max_length=16, blank=True, choices=MODES)
    """Tightens the server's mode for what nobody watches; never loosens it."""
    model_profile = models.ForeignKey(
        ModelProfile, null=True, blank=True, on_delete=models.SET_NULL, related_name="webhooks"
    )
    """Which model its sessions ask; None: the default."""
    secret = models.TextField(blank=True, editable=False)
    """Sealed by `tasks.secrets`; empty: nothing is accepted."""
    enabled = models.BooleanField(default=True)
    paused_reason = models.TextField(blank=True)
    """Why it was switched off by itself."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "id"]

    def __str__(self) -> str:
        return self.name


class WebhookDelivery(models.Model):
    """Something that was sent with the right secret, and what came of it."""

    class Outcome(models.TextChoices):
        CREATED = "created"  # there is a task
        REPEATED = "repeated"  # it had come before: `task` is that one's
        REFUSED = "refused"  # `reason` says why there is no task

    webhook = models.ForeignKey(
        Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False
    )
    sender_id = models.CharField(max_length=200, blank=True)
    """What the sender calls it; the same again is the same delivery. Empty: each is a new one."""
    size = models.PositiveIntegerField()
    """Bytes of the body."""
    outcome = models.CharField(max_length=16, choices=Outcome)
    reason = models.TextField(blank=True)
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.PROTECT, related_name="deliveries"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        verbose_name_plural = "webhook deliveries"
        indexes = [models.Index(fields=["webhook", "-created_at"], name="delivery_recent")]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} {self.outcome}"
