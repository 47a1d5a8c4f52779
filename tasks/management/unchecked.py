"""A command that begins at once."""

from __future__ import annotations

from django.core.management.base import BaseCommand


class UncheckedCommand(BaseCommand):
    """Without Django's checks first: they load the whole API and every page, a second of waiting.
    `manage.py check` is there for them, and wrong settings are refused without them."""

    requires_system_checks = ()
