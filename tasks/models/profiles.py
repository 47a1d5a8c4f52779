"""The models that runs may ask."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone


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
