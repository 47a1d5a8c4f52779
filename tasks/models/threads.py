"""What clients of AG-UI call their conversations and runs, and which of ours those are."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone

from tasks.models.work import Session, Task

MAX_NAME = 200
"""Characters of a client's own id."""


class AguiThread(models.Model):
    """A client's `threadId` and the session that it stands for."""

    # No index of its own: the unique constraint begins with it.
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="agui_threads",
        db_index=False,
    )
    name = models.CharField(max_length=MAX_NAME)
    """`threadId`: whatever the client chose; another person's is another thread."""
    session = models.ForeignKey(Session, on_delete=models.PROTECT, related_name="agui_threads")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "AG-UI thread"
        constraints = [
            models.UniqueConstraint(fields=["owner", "name"], name="agui_thread_of_person")
        ]

    def __str__(self) -> str:
        return self.name


class AguiRun(models.Model):
    """A client's `runId` and the piece of a task's log that it stands for: everything behind
    `after`, up to the next stop or the task's end."""

    # No index of its own: the unique constraint begins with it.
    thread = models.ForeignKey(
        AguiThread, on_delete=models.PROTECT, related_name="runs", db_index=False
    )
    name = models.CharField(max_length=MAX_NAME)
    """`runId`: new for every run of its thread."""
    # Nobody asks from its side.
    task = models.ForeignKey(
        Task, on_delete=models.PROTECT, related_name="agui_runs", db_index=False
    )
    after = models.BigIntegerField(default=0)
    """Sequence of the task's event behind which it begins: 0, or the stop that it answers."""
    answered = models.JSONField(default=list, blank=True)
    """Ids of the approvals that had an answer when it began."""
    digest = models.CharField(max_length=64)
    """SHA-256 of what was asked: the same run is not asked something else."""
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name = "AG-UI run"
        constraints = [
            models.UniqueConstraint(fields=["thread", "name"], name="agui_run_of_thread")
        ]

    def __str__(self) -> str:
        return self.name
