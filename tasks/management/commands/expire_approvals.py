"""`expire_approvals`: what nobody answered in time counts as rejected. A server does it by itself."""

from __future__ import annotations

from typing import Any

from tasks import approvals
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.writer import writer


class Command(UncheckedCommand):
    help = "Reject the approvals that nobody answered in time; their tasks go on afterwards."

    def handle(self, *_args: Any, **_options: Any) -> None:
        with in_words():
            tasks = writer.run_sync(approvals.expire_due)
        for task_id in tasks:
            self.stdout.write(f"task {task_id}: an approval expired")
        if not tasks:
            self.stdout.write("Nothing has expired.")
