"""What people asked for and what happened: sessions, tasks, their log and use, files that were made."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from agent.text import cut, parts_of
from tasks.models.columns import COPIED, MODES, copy_place, recent
from tasks.models.places import Workspace
from tasks.models.profiles import ModelProfile


class Session(models.Model):
    """A lasting conversation with an owner and a workspace."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="sessions"
    )
    workspace = models.ForeignKey(Workspace, on_delete=models.PROTECT, related_name="sessions")
    title = models.CharField(max_length=200, blank=True)
    archived = models.BooleanField(default=False)
    hidden = models.BooleanField(default=False)
    """Deleted for its owner; the log stays."""
    model_profile = models.ForeignKey(
        ModelProfile, null=True, blank=True, on_delete=models.SET_NULL, related_name="sessions"
    )
    """Which model its tasks ask; None: the default."""
    mode = models.CharField(max_length=16, blank=True, choices=MODES)
    """Tightens the mode of its tasks; empty: as workspace and server say."""
    last_position = models.BigIntegerField(default=0)
    """Position of the session's newest event; moves only inside an append."""
    forked_from = models.ForeignKey(
        "Task", null=True, blank=True, on_delete=models.PROTECT, related_name="forks"
    )
    forked_at_sequence = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-updated_at", "-id"]
        # `updated_at` moves with every event: what it is part of costs something all the time.
        indexes = [
            models.Index(
                fields=["owner", "archived", "-updated_at", "-id"], name="session_of_owner"
            ),
            models.Index(
                fields=["workspace", "archived", "-updated_at", "-id"], name="session_in_workspace"
            ),
            models.Index(fields=["-created_at", "-id"], name="session_recent"),
            models.Index(
                fields=["workspace", "-created_at", "-id"], name="session_recent_in_workspace"
            ),
            models.Index(
                fields=["-created_at", "-id"], name="session_hidden", condition=Q(hidden=True)
            ),
            models.Index(
                fields=["-created_at", "-id"], name="session_archived", condition=Q(archived=True)
            ),
        ]

    def __str__(self) -> str:
        return self.title or str(self.id)


class Task(models.Model):
    """One request with a status and an end."""

    class Status(models.TextChoices):
        QUEUED = "queued"  # waits for its turn
        RUNNING = "running"  # a runner holds its lease
        WAITING_APPROVAL = "waiting_approval"  # stopped; a person decides, or the next run begins
        COMPLETED = "completed"  # terminal: there is a final answer
        FAILED = "failed"  # terminal: `error` says why
        CANCELLED = "cancelled"  # terminal: a person stopped it
        BUDGET_EXCEEDED = "budget_exceeded"  # terminal: a limit stopped it

    class Trigger(models.TextChoices):
        CHAT = "chat"
        API = "api", "API"
        AGUI = "agui", "AG-UI"
        WEBHOOK = "webhook"
        CRON = "cron"
        COMMAND = "command"

    TERMINAL = frozenset(
        {Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.BUDGET_EXCEEDED}
    )
    OPEN = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING_APPROVAL})

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # No index of its own: two below begin with it.
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, **COPIED)
    """Of its session, like the workspace; `tasks.members` hands it over. Lists read their index."""
    workspace = models.ForeignKey(Workspace, **COPIED)
    goal = models.TextField()
    status = models.CharField(max_length=20, choices=Status, default=Status.QUEUED)
    trigger = models.CharField(max_length=16, choices=Trigger)
    mode = models.CharField(max_length=16, blank=True)
    """What the request asked for; it can only tighten what the server says."""
    limits = models.JSONField(default=dict, blank=True)
    """Limits of its own, each at most the server's: steps, seconds, tokens, cost."""
    model_profile = models.ForeignKey(
        ModelProfile, null=True, blank=True, on_delete=models.SET_NULL, related_name="tasks"
    )
    """Which model this one task asks; None: its session's."""
    follow_up_of = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="follow_ups"
    )
    run = models.PositiveIntegerField(default=0)
    """The fence: +1 at every start, resume and takeover; a runner writes only under its own."""
    last_sequence = models.BigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, blank=True)
    """Head of the hash chain, hex; empty before the first event."""
    last_event_at = models.DateTimeField(null=True, blank=True)
    """When its newest event was stored; the next one is never dated earlier."""
    first_position = models.BigIntegerField(default=0)
    """Position of its `task_created`: its place in the session's queue."""
    cancel_requested_at = models.DateTimeField(null=True, blank=True)
    cancel_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    final_answer = models.TextField(blank=True)
    error = models.JSONField(null=True, blank=True)
    """{code, message, hint} of a failed or over-budget task."""
    steps = models.PositiveIntegerField(default=0)
    usage = models.JSONField(default=dict, blank=True)
    cost = models.DecimalField(max_digits=14, decimal_places=6, null=True, blank=True)
    compacted_at = models.BigIntegerField(null=True, blank=True)
    """Sequence of its newest `context_compacted`: history is read from there on."""
    lease_worker = models.CharField(max_length=200, blank=True)
    """host:pid of the process that holds it."""
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=200, null=True, blank=True)  # noqa: DJ001 - NULLs are distinct in the unique constraint
    idempotency_digest = models.CharField(max_length=64, blank=True)
    """SHA-256 of the request body that the key stands for."""
    # No index of its own: the keys of idempotency begin with it.
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="tasks", db_index=False
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    status__in=[
                        "queued",
                        "running",
                        "waiting_approval",
                        "completed",
                        "failed",
                        "cancelled",
                        "budget_exceeded",
                    ]
                ),
                name="task_status_valid",
            ),
            models.UniqueConstraint(
                fields=["created_by", "idempotency_key"], name="task_idempotency_per_owner"
            ),
        ]
        indexes = [
            models.Index(fields=["session", "first_position"], name="task_in_session"),
            models.Index(
                fields=["session", "status", "first_position"], name="task_status_in_session"
            ),
            models.Index(fields=["created_by", "status"], name="task_status_of_person"),
            models.Index(fields=["-created_at", "-id"], name="task_recent"),
            models.Index(fields=["status", "-created_at", "-id"], name="task_recent_by_status"),
            models.Index(fields=["trigger", "-created_at", "-id"], name="task_recent_by_trigger"),
            *recent("task"),
            models.Index(
                fields=["status", "lease_expires_at"],
                name="task_open",
                condition=Q(status__in=["queued", "running", "waiting_approval"]),
            ),
        ]

    def __str__(self) -> str:
        said = "".join(part.text for part in parts_of(self.goal))
        return f"{cut(said, 60)} ({self.status})"

    def save(self, *args: Any, **options: Any) -> None:
        copy_place(self, self.session)
        super().save(*args, **options)


class TaskEvent(models.Model):
    """One stored fact. Written once, never changed."""

    # No index of their own: both unique constraints below begin with these columns.
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="events", db_index=False)
    sequence = models.BigIntegerField()
    """1, 2, 3 … per task, without gaps."""
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="events", db_index=False
    )
    position = models.BigIntegerField()
    """1, 2, 3 … per session, without gaps."""
    type = models.CharField(max_length=32)
    payload = models.TextField()
    """Canonical JSON, exactly as hashed."""
    created_at = models.DateTimeField()
    """Whole milliseconds."""
    hash = models.CharField(max_length=64)
    """HMAC-SHA256 over the previous hash and this event, hex."""

    class Meta:
        ordering = ["task", "sequence"]
        constraints = [
            models.UniqueConstraint(fields=["task", "sequence"], name="event_sequence_unique"),
            models.UniqueConstraint(fields=["session", "position"], name="event_position_unique"),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.type}"


class Tombstone(models.Model):
    """What stands where the events of a task were: how many, and the head of their chain. The audit
    has the same numbers in its own chain."""

    task = models.OneToOneField(Task, on_delete=models.PROTECT, related_name="tombstone")
    sequence = models.BigIntegerField()
    """Of the last event that is gone; all before it are gone as well."""
    hash = models.CharField(max_length=64)
    """That event's hash."""
    erased = models.BooleanField(default=False)
    """The words are gone, too: goal, answer and what approvals were about."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.sequence} events of {self.task_id}"


class ModelUsage(models.Model):
    """What one task used of one model on one day; kept beside the log by `tasks.usage`."""

    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="usage_rows")
    session = models.ForeignKey(
        Session, on_delete=models.PROTECT, related_name="usage_rows", db_index=False
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    """Who asked for the task."""
    day = models.DateField()
    """In the server's time zone."""
    model = models.CharField(max_length=200)
    calls = models.PositiveIntegerField(default=0)
    seconds = models.FloatField(default=0)
    """Working time up to the newest of the calls."""
    input_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    """Part of `input_tokens`."""
    output_tokens = models.BigIntegerField(default=0)
    reasoning_tokens = models.BigIntegerField(default=0)
    """Part of `output_tokens`."""
    cost = models.DecimalField(max_digits=18, decimal_places=9, default=0)
    priced_calls = models.PositiveIntegerField(default=0)
    """Calls whose cost is known."""
    estimated_calls = models.PositiveIntegerField(default=0)
    """Calls whose tokens were counted by us, because the provider did not say."""

    class Meta:
        ordering = ["-day", "-id"]
        verbose_name_plural = "model usage"
        constraints = [
            models.UniqueConstraint(fields=["task", "day", "model"], name="one_usage_row")
        ]
        indexes = [
            models.Index(fields=["user", "day"], name="usage_of_user"),
            models.Index(fields=["session", "day"], name="usage_of_session"),
            models.Index(fields=["-day", "-id"], name="usage_of_day"),
            models.Index(fields=["model", "-day", "-id"], name="usage_of_model"),
        ]

    def __str__(self) -> str:
        return f"{self.model} {self.day}"


class Artifact(models.Model):
    """A file that a run made for the person."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="artifacts")
    path = models.CharField(max_length=1024)
    """Relative to the workspace's root."""
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    media_type = models.CharField(max_length=100)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["task", "path"], name="artifact_path_per_task")
        ]
        indexes = [models.Index(fields=["-created_at", "-id"], name="artifact_recent")]

    def __str__(self) -> str:
        return self.path
