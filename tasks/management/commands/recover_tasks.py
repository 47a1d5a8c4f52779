"""`recover_tasks`: do what a server would do now, once, then end.

Begins whatever is runnable (its turn has come, its last approval was answered, its process died)
and drives it until it ends or waits for a person. A task that a living process holds is left to
it: its lease is renewed within seconds, and that is awaited.
"""

from __future__ import annotations

import asyncio
import signal
from argparse import ArgumentParser
from datetime import datetime
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.core.management.base import CommandError
from django.utils import timezone

from tasks import goals
from tasks.conf import conf
from tasks.management.people import in_words, quiet
from tasks.management.terminal import on_one_line
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Task
from tasks.runner import Runner, worker_name
from tasks.watching import runnable

LOOK_SECONDS = 0.1


class Command(UncheckedCommand):
    help = "Run what can run now, without a server, until it ends or waits for a person."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--list", action="store_true", help="only say what would be run")

    def handle(self, *_args: Any, **options: Any) -> None:
        with quiet(options["verbosity"]), in_words():
            if conf().scale_out and not options["list"]:
                raise CommandError(
                    "With REDIS_URL, workers take over by themselves: `manage.py worker` starts one."
                )
            if options["list"]:
                self._list()
            else:
                asyncio.run(self._recover())

    def _list(self) -> None:
        ready = list(Task.objects.filter(runnable(), status__in=Task.OPEN).order_by("created_at"))
        for task in ready:
            self._say(task)
        if not ready:
            self.stdout.write("Nothing to run.")

    def _say(self, task: Task) -> None:
        self.stdout.write(
            f"{task.pk}  {task.status:<16}  {on_one_line(goals.plain(task.goal), 70)}"
        )

    async def _recover(self) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        runner = Runner(worker_name())
        work = Work(runner.worker)
        await sync_to_async(work.look)()
        await runner.start()
        said = 0
        while not stop.is_set():
            busy = runner.active > 0  # asked first: the look then sees how such a run ended
            for task in await sync_to_async(work.look)():
                self._say(task)
                said += 1
            if not (work.left or busy or runner.active):
                break
            await asyncio.sleep(LOOK_SECONDS)
        await runner.drain(conf().drain_seconds if stop.is_set() else 0)
        if not said:
            self.stdout.write("Nothing was run.")


class Work:
    """The open tasks of the database, looked at again and again."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._known: dict[UUID, tuple[str, int]] = {}
        """Status and run when they were last looked at."""
        self._leases: dict[UUID, datetime] = {}
        """When the leases of others would end, as first seen."""
        self.left = True
        """Whether something can still be run, now or when a dead process's lease has ended."""

    def look(self) -> list[Task]:
        """The tasks that came to a stop since the last look."""
        left = _anything()
        rows = Task.objects.filter(status__in=Task.OPEN) | Task.objects.filter(
            pk__in=list(self._known)
        )
        stopped = []
        for task in rows.order_by("created_at"):
            before = self._known.get(task.pk)
            self._known[task.pk] = (task.status, task.run)
            if before not in {None, (task.status, task.run)} and task.status != "running":
                stopped.append(task)
            if task.status in Task.TERMINAL:
                del self._known[task.pk]
            elif self._may_be_dead(task):
                left = True
        # Once more: a lease may have ended between the first answer and its row.
        self.left = left or _anything()
        return stopped

    def _may_be_dead(self, task: Task) -> bool:
        """A living process renews its lease long before the end."""
        until = task.lease_expires_at
        if until is None or until <= timezone.now() or task.lease_worker == self._worker:
            return False
        return self._leases.setdefault(task.pk, until) == until


def _anything() -> bool:
    return Task.objects.filter(runnable(), status__in=Task.OPEN).exists()
