"""What people decide: approvals, who was told of them, standing rules."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, Q, Value, When
from django.utils import timezone

from tasks.models.columns import COPIED, copy_place, recent
from tasks.models.places import Workspace
from tasks.models.work import Session, Task


class Approval(models.Model):
    """A pending question to a person about one call, and its answer."""

    class Kind(models.TextChoices):
        CALL = "call"  # may this call run?
        UNKNOWN_EFFECT = "unknown_effect"  # did it happen before the crash?
        QUESTION = "question"  # the agent asks
        LIMIT = "limit"  # as much again?

    class Status(models.TextChoices):
        PENDING = "pending"
        APPROVED = "approved"
        REJECTED = "rejected"
        EXPIRED = "expired"  # nobody answered; counts as rejected
        STALE = "stale"  # the target changed; `replaced_by` asks anew
        CANCELLED = "cancelled"  # the task was stopped

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # No index of its own: one below begins with it.
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, related_name="approvals", db_index=False
    )
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, **COPIED)
    """Of its task, like the workspace."""
    workspace = models.ForeignKey(Workspace, **COPIED)
    kind = models.CharField(max_length=16, choices=Kind)
    step = models.PositiveIntegerField()
    tool_call_id = models.CharField(max_length=200)
    tool = models.CharField(max_length=100)
    capability = models.CharField(max_length=100)
    risk = models.CharField(max_length=16)
    arguments = models.JSONField()
    arguments_digest = models.CharField(max_length=64, blank=True)
    target_digest = models.CharField(max_length=64, blank=True)
    diff = models.TextField(blank=True)
    options = models.JSONField(default=list, blank=True)
    scopes = models.JSONField(default=list, blank=True)
    """How far an answer may reach; empty: once."""
    standing = models.TextField(blank=True)
    """What a rule of a wider scope would fit, for people."""
    reason = models.TextField(blank=True)
    rule = models.TextField(blank=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.PENDING)
    votes = models.JSONField(default=list, blank=True)
    """Yeses so far, where more than one is needed: {user_id, by, at, comment, edited_arguments, agreement}"""
    waits = models.GeneratedField(
        expression=Case(When(status="pending", then=Value(1)), default=Value(0)),
        output_field=models.SmallIntegerField(),
        db_persist=True,
    )
    """1 while it is pending: what waits comes first."""
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    waits_since = models.DateTimeField(default=timezone.now)
    """When it was asked, or last given more time: what reminders count from."""
    notify_at = models.DateTimeField(null=True, blank=True, default=timezone.now)
    """When people are told of it next; None: not again."""
    notices = models.PositiveIntegerField(default=0)
    """How often they were told."""
    resolved_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    resolved_at = models.DateTimeField(null=True, blank=True)
    reply_digest = models.CharField(max_length=64, blank=True)
    """SHA-256 of the reply that won: the same person repeating it gets the stored answer."""
    comment = models.TextField(blank=True)
    answer = models.TextField(blank=True)
    edited_arguments = models.JSONField(null=True, blank=True)
    scope = models.CharField(max_length=16, default="once")
    replaced_by = models.OneToOneField(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="replaces"
    )

    class Meta:
        ordering = ["created_at", "id"]
        permissions = [("resolve_approval", "Can decide approvals of every workspace")]
        constraints = [
            models.CheckConstraint(
                condition=Q(
                    status__in=["pending", "approved", "rejected", "expired", "stale", "cancelled"]
                ),
                name="approval_status_valid",
            ),
            models.UniqueConstraint(
                fields=["task", "tool_call_id", "kind"],
                condition=Q(status="pending"),
                name="one_pending_approval_per_call",
            ),
        ]
        indexes = [
            models.Index(
                fields=["expires_at"], name="approval_pending", condition=Q(status="pending")
            ),
            models.Index(fields=["task", "status"], name="approval_of_task"),
            models.Index(fields=["-waits", "-created_at", "-id"], name="approval_waiting_first"),
            models.Index(fields=["-created_at", "-id"], name="approval_recent"),
            models.Index(fields=["status", "-created_at", "-id"], name="approval_by_status"),
            models.Index(fields=["kind", "-created_at", "-id"], name="approval_by_kind"),
            *recent("approval"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} ({self.status})"

    def save(self, *args: Any, **options: Any) -> None:
        copy_place(self, self.task)
        super().save(*args, **options)


class PolicyRule(models.Model):
    """Somebody's standing word about calls of a kind. Read by `tasks.rules` alone."""

    class Scope(models.TextChoices):
        GLOBAL = "global"
        WORKSPACE = "workspace"
        SESSION = "session"
        TASK = "task"

    class Decision(models.TextChoices):
        ALLOW = "allow"  # runs unasked
        ASK = "ask"  # a person decides
        DENY = "deny"  # is refused, whatever else is said

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    scope = models.CharField(max_length=16, choices=Scope)
    workspace = models.ForeignKey(
        Workspace, null=True, blank=True, on_delete=models.CASCADE, related_name="rules"
    )
    session = models.ForeignKey(
        Session, null=True, blank=True, on_delete=models.CASCADE, related_name="rules"
    )
    task = models.ForeignKey(
        Task, null=True, blank=True, on_delete=models.CASCADE, related_name="rules"
    )
    decision = models.CharField(max_length=8, choices=Decision)
    capability = models.CharField(max_length=100, blank=True)
    """Patterns, here and below: see `agent.patterns`. Empty fits everything."""
    tool = models.CharField(max_length=100, blank=True)
    path = models.CharField(max_length=1024, blank=True)
    host = models.CharField(max_length=255, blank=True)
    command = models.CharField(max_length=1000, blank=True)
    digest = models.CharField(max_length=64, blank=True, editable=False)
    """Of one exact call."""
    priority = models.IntegerField(default=0)
    """Higher is looked at first; 0 for rules made from a card."""
    final = models.BooleanField(default=False)
    """Decides over every other rule but one that denies; only of a global rule."""
    expires_at = models.DateTimeField(null=True, blank=True)
    max_uses = models.PositiveIntegerField(null=True, blank=True)
    """How many calls it may allow; None: any number."""
    used = models.PositiveIntegerField(default=0, editable=False)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="rules"
    )
    made_from = models.ForeignKey(
        Approval, null=True, blank=True, on_delete=models.PROTECT, related_name="rules"
    )
    """The card whose answer made it; None: an administrator did."""
    note = models.CharField(max_length=200, blank=True)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(scope="global", workspace=None, session=None, task=None, made_from=None)
                | Q(scope="workspace", workspace__isnull=False, session=None, task=None)
                | Q(scope="session", workspace=None, session__isnull=False, task=None)
                | Q(scope="task", workspace=None, session=None, task__isnull=False),
                name="rule_scope_valid",
            ),
            models.CheckConstraint(
                condition=Q(final=False) | Q(scope="global"), name="rule_final_is_global"
            ),
            models.CheckConstraint(
                condition=Q(decision__in=["allow", "ask", "deny"]), name="rule_decision_valid"
            ),
        ]
        indexes = [
            models.Index(
                fields=["scope"], name="rule_global", condition=Q(scope="global", enabled=True)
            ),
        ]

    def __str__(self) -> str:
        return self.note or f"{self.decision} {self.tool or self.capability or 'everything'}"


class Notice(models.Model):
    """One message about a waiting approval to somebody who may not be looking."""

    class Channel(models.TextChoices):
        MAIL = "mail"
        WEBHOOK = "webhook"

    class Status(models.TextChoices):
        PENDING = "pending"  # to be sent, or tried again
        SENT = "sent"
        FAILED = "failed"  # given up; `error` says why
        DROPPED = "dropped"  # somebody had decided before it was sent

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    approval = models.ForeignKey(Approval, on_delete=models.CASCADE, related_name="messages")
    channel = models.CharField(max_length=16, choices=Channel)
    reminder = models.PositiveIntegerField(default=0)
    """0: it was just asked; else the how manieth reminder."""
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    """Who gets the mail."""
    address = models.CharField(max_length=254)
    """A mailbox, or scheme and host of the webhook."""
    status = models.CharField(max_length=16, choices=Status, default=Status.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(default=timezone.now)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["next_at"], name="notice_pending", condition=Q(status="pending")),
            models.Index(fields=["-created_at", "-id"], name="notice_recent"),
        ]

    def __str__(self) -> str:
        return f"{self.channel} to {self.address} ({self.status})"
