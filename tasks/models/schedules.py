"""Goals that are asked for again and again."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tasks.models.places import Workspace
from tasks.models.work import Session, Task


class Schedule(models.Model):
    """A goal that is asked for again and again, in a session of its own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="schedules"
    )
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="schedules")
    session = models.ForeignKey(
        Session, null=True, blank=True, on_delete=models.PROTECT, related_name="schedules"
    )
    """Made with the first task."""
    name = models.CharField(max_length=100)
    goal = models.TextField()
    cron = models.CharField(max_length=100)
    """Five fields, read in `time_zone`."""
    time_zone = models.CharField(max_length=64, default="UTC")
    mode = models.CharField(max_length=16, blank=True)
    """Tightens the server's mode for what nobody watches; never loosens it."""
    enabled = models.BooleanField(default=True)
    paused_reason = models.TextField(blank=True)
    """Why it was switched off by itself."""
    next_due_at = models.DateTimeField(null=True, blank=True)
    """The next time that is not claimed yet."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name", "id"]
        indexes = [
            models.Index(fields=["next_due_at"], name="schedule_enabled", condition=Q(enabled=True))
        ]

    def __str__(self) -> str:
        return self.name


class ScheduleTick(models.Model):
    """One due time of a schedule and what came of it."""

    class Outcome(models.TextChoices):
        CLAIMED = "claimed"  # its task is about to be made
        CREATED = "created"  # there is a task
        SKIPPED = "skipped"  # `reason` says why there is none

    schedule = models.ForeignKey(
        Schedule, on_delete=models.CASCADE, related_name="ticks", db_index=False
    )
    due_at = models.DateTimeField()
    manual = models.BooleanField(default=False)
    """Somebody pressed "run now"."""
    outcome = models.CharField(max_length=16, choices=Outcome, default=Outcome.CLAIMED)
    reason = models.TextField(blank=True)
    task = models.OneToOneField(
        Task, null=True, blank=True, on_delete=models.PROTECT, related_name="tick"
    )
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-due_at"]
        constraints = [
            models.UniqueConstraint(fields=["schedule", "due_at"], name="one_tick_per_due_time")
        ]
        indexes = [
            models.Index(fields=["created_at"], name="tick_claimed", condition=Q(outcome="claimed"))
        ]

    def __str__(self) -> str:
        return f"{self.due_at:%Y-%m-%d %H:%M} {self.outcome}"
