"""The Django app. Nothing starts here: commands, migrations and tests load it, too."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "tasks"
    verbose_name = "Pilothouse"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Whoever signs in, by whatever page, is in the audit. Models are not there before now."""
        from django.contrib.auth.signals import user_logged_in

        user_logged_in.connect(_signed_in, dispatch_uid="tasks.audit")


def _signed_in(sender: object, request: Any, user: Any, **_: Any) -> None:
    from tasks import audit

    audit.note(
        audit.Change(
            action="user.signed_in",
            by=user.get_username(),
            object_type="user",
            object_id=str(user.pk),
            name=user.get_username(),
        )
    )
