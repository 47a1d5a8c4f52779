"""What is durable: the rows behind sessions, tasks, their events, approvals and tokens.

Status columns move only through `tasks.lifecycle` and `tasks.approvals`; `TaskEvent` rows are
written only by `tasks.events`. Everything a URL names has a UUID.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Case, Q, Value, When
from django.utils import timezone

MODES = [("ask", "ask"), ("deny", "deny"), ("read_only", "read only")]


_COPIED: dict[str, Any] = {
    "on_delete": models.PROTECT,
    "related_name": "+",
    "db_constraint": False,
    "db_index": False,
    "editable": False,
}
"""A column copied from the row above, which has the constraint; `_recent` has its indexes."""


def _copy(row: Task | Approval, above: Session | Task) -> None:
    if row._state.adding:
        row.owner_id, row.workspace_id = above.owner_id, above.workspace_id


def _recent(name: str) -> list[models.Index]:
    """For the lists of one owner or one workspace, newest first, of all statuses or one."""
    order = ["-created_at", "-id"]
    return [
        models.Index(fields=[place, *status, *order], name="_".join([name, "of", place, *status]))
        for place in ("owner", "workspace")
        for status in ([], ["status"])
    ]


class Workspace(models.Model):
    """The one folder that a session's tools may touch."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    root = models.CharField(max_length=1024, unique=True)
    """A real, absolute path; never nested in another workspace's root."""
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="workspaces"
    )
    instructions = models.TextField(blank=True)
    """The owner's standing instructions; always in the prompt."""
    mode = models.CharField(max_length=16, blank=True, choices=MODES)
    """Tightens the server's mode for everything that runs here; empty: as the server says."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["created_at", "id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="workspace_name_per_owner")
        ]

    def __str__(self) -> str:
        return self.name


class Member(models.Model):
    """Somebody beside the owner who may see, use or decide in a workspace."""

    class Role(models.TextChoices):
        VIEWER = "viewer"  # reads sessions and tasks
        MEMBER = "member"  # creates and steers tasks too
        APPROVER = "approver"  # decides approvals too

    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="members")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships"
    )
    role = models.CharField(max_length=16, choices=Role)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["workspace", "user"], name="one_role_per_workspace"),
            models.CheckConstraint(
                condition=Q(role__in=["viewer", "member", "approver"]), name="member_role_valid"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user_id} {self.role}"


class ModelProfile(models.Model):
    """A model that runs may ask: where it is, what it costs, how its server differs."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100, unique=True)
    base_url = models.CharField(max_length=500)
    """The address before /chat/completions; never with a key in it."""
    model = models.CharField(max_length=200)
    key = models.TextField(blank=True, editable=False)
    """`env:NAME`, or sealed by `tasks.secrets`; written only by `tasks.profiles`."""
    stream = models.BooleanField(default=True)
    context_size = models.PositiveIntegerField(null=True, blank=True)
    """Tokens that the model can read; None: about 100,000."""
    price_input = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    """Per million tokens, like the other two."""
    price_cached = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    """Of input that the provider had cached; None: as other input."""
    price_output = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    currency = models.CharField(max_length=3, default="USD")
    limits = models.JSONField(default=dict, blank=True)
    """Of a task that asks it, each at most the server's: steps, seconds, tokens, cost."""
    options = models.JSONField(default=dict, blank=True)
    """Fields for every request, e.g. temperature, max_tokens."""
    quirks = models.JSONField(default=dict, blank=True)
    """How its server differs (`agent.providers.quirks`); learnt at run time or set here."""
    fallback = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="stands_in_for"
    )
    """Asked instead when this one cannot be reached."""
    is_default = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="one_default_model"
            )
        ]

    def __str__(self) -> str:
        return self.name


class LearntQuirks(models.Model):
    """How the server that the settings name differs, learnt at run time; a profile keeps its own."""

    server = models.CharField(max_length=64, primary_key=True)
    """Digest of base URL and model: an address may carry a password."""
    quirks = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.server[:12]


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
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, **_COPIED)
    """Of its session, like the workspace; `tasks.members` hands it over. Lists read their index."""
    workspace = models.ForeignKey(Workspace, **_COPIED)
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
            *_recent("task"),
            models.Index(
                fields=["status", "lease_expires_at"],
                name="task_open",
                condition=Q(status__in=["queued", "running", "waiting_approval"]),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.goal[:60]} ({self.status})"

    def save(self, *args: Any, **options: Any) -> None:
        _copy(self, self.session)
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
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, **_COPIED)
    """Of its task, like the workspace."""
    workspace = models.ForeignKey(Workspace, **_COPIED)
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
            *_recent("approval"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} ({self.status})"

    def save(self, *args: Any, **options: Any) -> None:
        _copy(self, self.task)
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


class ApiToken(models.Model):
    """A bearer token. Only its hash is kept."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens"
    )
    name = models.CharField(max_length=100, blank=True)
    prefix = models.CharField(max_length=16)
    """The first characters, to recognise it by."""
    digest = models.CharField(max_length=64, unique=True)
    """SHA-256 of the token, hex: it has 256 random bits, so no salt is needed."""
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at"]
        verbose_name = "API token"

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class SignInLink(models.Model):
    """A one-time sign-in link: single use, short-lived, hash stored."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, unique=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-expires_at"]

    def __str__(self) -> str:
        return f"for {self.user_id} until {self.expires_at:%H:%M}"


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


class AuditEntry(models.Model):
    """Who changed what stands around the tasks. Written once, by `tasks.audit`."""

    sequence = models.BigIntegerField(unique=True)
    """1, 2, 3 … without gaps."""
    created_at = models.DateTimeField()
    """Whole milliseconds."""
    by = models.CharField(max_length=150)
    """The user's name as it was then; `-` for a command or for Pilothouse itself."""
    action = models.CharField(max_length=64)
    """e.g. schedule.changed"""
    object_type = models.CharField(max_length=32)
    object_id = models.CharField(max_length=64, blank=True)
    details = models.TextField()
    """Canonical JSON {name, before, after, note}, secrets masked, exactly as hashed."""
    hash = models.CharField(max_length=64)
    """HMAC-SHA256 over the previous hash and this entry, hex."""

    class Meta:
        ordering = ["-sequence"]
        verbose_name_plural = "audit entries"
        indexes = [
            models.Index(fields=["object_type", "object_id"], name="audit_of_object"),
            models.Index(fields=["object_type", "-sequence"], name="audit_by_type"),
            models.Index(fields=["action", "-sequence"], name="audit_by_action"),
            models.Index(fields=["-created_at"], name="audit_recent"),
        ]

    def __str__(self) -> str:
        return f"{self.sequence} {self.action}"


class AuditHead(models.Model):
    """One row: where the chain of audit entries ends."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    last_sequence = models.BigIntegerField(default=0)
    last_hash = models.CharField(max_length=64, blank=True)

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id=1), name="one_audit_head")]

    def __str__(self) -> str:
        return f"{self.last_sequence} {self.last_hash[:8]}"
