"""`prune_events --older-than DAYS` and `prune_events --erase`: let go of what is old or deleted.

`--older-than` deletes the events of tasks in sessions that have rested for so many days; goals,
answers, approvals and usage stay. `--erase` deletes everything that was said in deleted sessions.
Both leave tombstones, so `verify_log` can still tell that nothing else is gone; its root stays the
same for what was there before, but for the audit's entries about the pruning itself.
"""

from __future__ import annotations

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone

from tasks import pruning
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand


class Command(UncheckedCommand):
    help = "Delete the events of tasks that rest for so long, or all words of deleted sessions."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--older-than", type=int, metavar="DAYS", help="at least 1")
        parser.add_argument("--erase", action="store_true", help="deleted sessions, whatever age")
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")

    def handle(self, *_args: Any, **options: Any) -> None:
        days: int | None = options["older_than"]
        if days is None and not options["erase"]:
            raise CommandError("Say --older-than DAYS, --erase, or both.", returncode=2)
        if days is not None and days < 1:
            raise CommandError("--older-than must be at least 1.", returncode=2)
        with in_words():
            if options["erase"]:
                self._erase(only_say=options["dry_run"])
            if days is not None:
                self._prune(days, only_say=options["dry_run"])

    def _prune(self, days: int, *, only_say: bool) -> None:
        before = timezone.now() - timedelta(days=days)
        if only_say:
            self.stdout.write(f"{pruning.old(before).count()} tasks would be pruned.")
            return
        gone = [count for _, count in pruning.prune(before) if count]
        self.stdout.write(f"{sum(gone)} events of {len(gone)} tasks were pruned.")

    def _erase(self, *, only_say: bool) -> None:
        if only_say:
            self.stdout.write(f"{pruning.deleted().count()} tasks would be erased.")
            return
        gone = [count for _, count in pruning.erase()]
        self.stdout.write(f"{sum(gone)} events of {len(gone)} tasks were erased.")
        if gone and connection.vendor == "sqlite":
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
