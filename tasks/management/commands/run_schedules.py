"""`run_schedules [--loop]`: make the tasks of the schedules that are due.

Call it from the system's cron every minute, or leave it running with --loop. Twice at once, late,
or killed at any moment: each due time makes at most one task. The tasks themselves are run by the
server, now or when it starts again.
"""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.utils import timezone

from tasks import schedules
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Schedule, ScheduleTick

LONGEST_SLEEP = 20.0
"""Seconds with --loop: a schedule that somebody just made is seen within this time."""


class Command(UncheckedCommand):
    help = "Make the tasks that are due. Safe every minute, twice at once, and late."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--loop", action="store_true", help="stay, and look again; ends with SIGTERM or Ctrl-C"
        )

    def handle(self, *_args: Any, loop: bool = False, **_options: Any) -> None:
        if not loop:
            with in_words():
                self._once()
            return
        ended = _ended_by_signal()
        self.stdout.write("Schedules are watched. Ctrl-C ends.")
        self.stdout.flush()
        while not ended.is_set():
            try:
                with in_words():
                    self._once()
            except CommandError as trouble:  # the database will be back
                self.stderr.write(str(trouble))
            ended.wait(_pause())

    def _once(self) -> None:
        for tick in schedules.run_due():
            self.stdout.write(_told(tick))


def _told(tick: ScheduleTick) -> str:
    what = f"task {tick.task_id}" if tick.task_id else tick.reason
    return f"{tick.due_at:%Y-%m-%d %H:%M} UTC  {tick.schedule.name}: {tick.outcome}, {what}"


def _pause() -> float:
    """Until the next due time, but never long: somebody may change a schedule."""
    try:
        with in_words():
            due = (
                Schedule.objects.filter(enabled=True, next_due_at__isnull=False)
                .order_by("next_due_at")
                .values_list("next_due_at", flat=True)
                .first()
            )
    except CommandError:
        return LONGEST_SLEEP
    if due is None:
        return LONGEST_SLEEP
    return min(LONGEST_SLEEP, max(0.2, (due - timezone.now()).total_seconds()))


def _ended_by_signal() -> threading.Event:
    ended = threading.Event()

    def end(*_: Any) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    return ended
