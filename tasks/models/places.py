"""Where work happens: workspaces and their members."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tasks.models.columns import MODES


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
    mcp_servers = models.JSONField(default=list, blank=True, verbose_name="MCP servers")
    """Names of those that its tasks may use, of those that the settings declare."""
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
