"""The Django app. Nothing starts here: commands, migrations and tests load it, too."""

from __future__ import annotations

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks"
    verbose_name = "Pilothouse"
    default_auto_field = "django.db.models.BigAutoField"
