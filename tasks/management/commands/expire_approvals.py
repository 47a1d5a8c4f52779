"""`expire_approvals`: what nobody answered in time counts as rejected. A server does it by itself."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from tasks import approvals
from tasks.management.people import in_words
from tasks.writer import writer


class Command(BaseCommand):
    help = "Reject the approvals that nobody answered in time; their tasks go on afterwards."
    requires_system_checks = ()  # they load the whole API, half a second of waiting

    def handle(self, *_args: Any, **_options: Any) -> None:
        with in_words():
            tasks = writer.run_sync(approvals.expire_due)
        for task_id in tasks:
            self.stdout.write(f"task {task_id}: an approval expired")
        if not tasks:
            self.stdout.write("Nothing has expired.")
