"""`verify_log [TASK]`: is the event log whole and unchanged?

For every task: the hash chain, the numbering without gaps, and that it ends at the head on the
task row; and that its approvals, which have rows of their own, say what the log says. For every
session: positions without gaps. One line per broken task, approval or session, then the root: SHA-256 over the lines `task id:last sequence:last hash`, in the order of the ids, and a last
line `audit:last sequence:last hash` of the audit, each ended by a line feed. A root kept elsewhere
proves later that nothing was cut off.

Runs beside a working server and holds no lock: rows are streamed, and a task that grows meanwhile
is read on until its head is reached.
"""

from __future__ import annotations

import hashlib
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db.models import BigIntegerField, Count, Max, Min, OuterRef, Subquery, Sum
from django.db.models.functions import Coalesce

from tasks import audit, evidence, pruning
from tasks.chain import Chain, verify_task
from tasks.management.people import in_words
from tasks.management.unchecked import UncheckedCommand
from tasks.models import Session, Task, TaskEvent, Tombstone

CHUNK = 2000


class Command(UncheckedCommand):
    help = (
        "Check the hash chain, numbering and head of every task; exit status 1 when one is broken."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "task", nargs="?", type=uuid.UUID, metavar="TASK", help="only this task"
        )

    def handle(self, *_args: Any, task: uuid.UUID | None = None, **_options: Any) -> None:
        with in_words():
            if task is None:
                self._everything()
            else:
                self._single(task)

    def _single(self, task_id: uuid.UUID) -> None:
        if not Task.objects.filter(pk=task_id).exists():
            raise CommandError(f"There is no task {task_id}.", returncode=2)
        chain = verify_task(task_id)
        wrong = _wrong(task_id, chain)
        if wrong:
            self.stdout.writelines(f"task {task_id}: {problem}\n" for problem in wrong)
            raise CommandError("The log of this task is broken.")
        self.stdout.write(f"task {task_id}: {chain.sequence} events, head {chain.hash or '-'}")

    def _everything(self) -> None:
        root, tasks, count, broken = hashlib.sha256(), 0, 0, 0
        ids = Task.objects.order_by("pk").values_list("pk", flat=True)
        for task_id in ids.iterator(CHUNK):
            chain = verify_task(task_id)
            root.update(f"{task_id}:{chain.sequence}:{chain.hash}\n".encode())
            tasks, count = tasks + 1, count + chain.sequence
            for problem in _wrong(task_id, chain):
                broken += 1
                self.stdout.write(f"task {task_id}: {problem}")
        for session_id, problem in broken_sessions():
            broken += 1
            self.stdout.write(f"session {session_id}: {problem}")
        log = audit.verify()
        root.update(f"audit:{log.sequence}:{log.hash}\n".encode())
        if log.problem:
            broken += 1
            self.stdout.write(f"audit: {log.problem}")
        for task_id in pruning.unexplained():
            broken += 1
            self.stdout.write(f"task {task_id}: the audit does not say that it was pruned")
        self._say_pruned()
        self.stdout.write(f"audit: {log.sequence} entries, head {log.hash or '-'}")
        self.stdout.write(f"{tasks} tasks, {count} events, {broken} broken")
        self.stdout.write(f"root {root.hexdigest()}")
        if broken:
            raise CommandError("The log is broken.")

    def _say_pruned(self) -> None:
        pruned = Tombstone.objects.aggregate(tasks=Count("pk"), events=Sum("sequence"))
        if pruned["tasks"]:
            self.stdout.write(
                f"of these {pruned['events']} events of {pruned['tasks']} tasks pruned"
            )


def _wrong(task_id: uuid.UUID, chain: Chain) -> list[str]:
    """Rows are held against the log only where the log itself is whole."""
    return [chain.problem] if chain.problem else evidence.problems(task_id)


def broken_sessions() -> Iterator[tuple[uuid.UUID, str]]:
    """Positions without gaps, but for those of events that were pruned. One statement, hence one
    moment: an append cannot come in between."""
    stones = Tombstone.objects.filter(task__session=OuterRef("pk")).order_by()
    pruned = stones.values("task__session").annotate(all=Sum("sequence")).values("all")
    found = (
        Session.objects.order_by("pk")
        .annotate(pruned=Coalesce(Subquery(pruned), 0, output_field=BigIntegerField()))
        .values_list("pk", "last_position", "pruned")
        .annotate(
            count=Count("events"), first=Min("events__position"), last=Max("events__position")
        )
    )
    for session_id, last_position, gone, count, first, last in found.iterator(CHUNK):
        in_a_row = gone or not count or (first, last) == (1, count)
        if count + gone != last_position or not in_a_row:
            yield session_id, f"position {_first_gap(session_id)} is missing, or behind its end"
        elif count and last > last_position:
            yield session_id, f"position {last} is behind its end"


def _first_gap(session_id: uuid.UUID) -> int:
    positions = TaskEvent.objects.filter(session_id=session_id).order_by("position")
    expected = 1
    for position in positions.values_list("position", flat=True).iterator(CHUNK):
        if position != expected:
            break
        expected += 1
    return expected
