"""What MCP servers say of their tools, and what a person accepted of it."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone


class McpTool(models.Model):
    """A declared tool of an MCP server: its newest definition beside the accepted one."""

    class State(models.TextChoices):
        NEW = "new"  # nobody has accepted it yet
        IN_FORCE = "in_force"  # it is what a person accepted
        CHANGED = "changed"  # it is not what a person accepted
        UNUSABLE = "unusable"  # no model could be offered it
        GONE = "gone"  # the server does not list it any more

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    server = models.CharField(max_length=24)
    """The name that the settings give it."""
    name = models.CharField(max_length=200)
    """As the server calls it."""
    seen = models.TextField(blank=True)
    """The newest definition (`agent.mcp.definitions`); empty: it is not listed."""
    problem = models.TextField(blank=True)
    """Why the newest definition cannot be used."""
    seen_at = models.DateTimeField(default=timezone.now)
    """When the newest definition was first seen."""
    accepted = models.TextField(blank=True)
    """The definition that a person accepted; empty: none."""
    accepted_by = models.CharField(max_length=150, blank=True)
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "MCP tool"
        ordering = ["server", "name"]
        constraints = [
            models.UniqueConstraint(fields=["server", "name"], name="one_row_per_mcp_tool")
        ]

    def __str__(self) -> str:
        return f"{self.server}: {self.name}"

    @property
    def state(self) -> State:
        if not self.seen:
            return self.State.GONE
        if self.problem:
            return self.State.UNUSABLE
        if self.accepted == self.seen:
            return self.State.IN_FORCE
        return self.State.CHANGED if self.accepted else self.State.NEW
