"""Who changed what stands around the tasks."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


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
