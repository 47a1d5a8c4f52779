"""From a session's log to what the model is told: the transcript of a task with its history.

A task's history is the chain of the tasks that it follows up, oldest first; a forked session
begins with the chain of the task that it was forked from, up to the chosen event. Reading costs
queries: call these in a thread or a command, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from uuid import UUID

from agent.events import TERMINAL_TYPES
from agent.transcript import Transcript
from tasks import events
from tasks.events import Row
from tasks.models import Task

PAGE = 1000
RUNNER_ENDS = TERMINAL_TYPES | {"approval_required"}


def rows_of(task_id: UUID, up_to: int | None = None) -> Iterator[Row]:
    """The task's events in order, page by page; with `up_to` only those up to that sequence."""
    after = 0
    while page := events.page(task_id, after, PAGE):
        for row in page:
            if up_to is not None and row.sequence > up_to:
                return
            yield row
        after = page[-1].sequence


def chain(task: Task) -> list[tuple[UUID, int | None]]:
    """The tasks that this one continues, oldest first, itself last; each with the last sequence
    that counts (None: all)."""
    links: list[tuple[UUID, int | None]] = []
    current: Task | None = task
    up_to: int | None = None
    while current is not None:
        links.append((current.id, up_to))
        session = current.session
        current, up_to = (
            (current.follow_up_of, None)
            if current.follow_up_of is not None
            else (session.forked_from, session.forked_at_sequence)
        )
    return links[::-1]


def transcript_of(task: Task) -> Transcript:
    """Everything that the next model call of this task depends on."""
    transcript = Transcript()
    seconds = 0.0
    for task_id, up_to in chain(task):
        meter = WorkingTime()
        for row in meter.watch(rows_of(task_id, up_to)):
            transcript.apply(events.typed(row))
        seconds = meter.seconds
    transcript.spent.seconds = seconds
    return transcript


class WorkingTime:
    """Seconds that a task was worked on: from each `task_started` to the last thing its run wrote.
    Waiting for a person or for a free server costs nothing."""

    def __init__(self) -> None:
        self._earlier = 0.0
        self._began: datetime | None = None
        self._last: datetime | None = None

    @property
    def seconds(self) -> float:
        if self._began is None or self._last is None:
            return self._earlier
        return self._earlier + (self._last - self._began).total_seconds()

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._look(row)
            yield row

    def _look(self, row: Row) -> None:
        if row.type == "task_started":
            self._earlier = self.seconds
            self._began = self._last = row.created_at
        elif self._began is not None and row.type not in _NOT_WORK:
            self._last = row.created_at
            if row.type in RUNNER_ENDS:
                self._earlier = self.seconds
                self._began = None


_NOT_WORK = frozenset({"approval_resolved", "approval_updated", "user_message", "task_recovered"})
"""What people and the recovery write, perhaps long after the run stopped."""
