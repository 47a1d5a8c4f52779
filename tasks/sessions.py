"""From a session's log to what the model is told: the transcript of a task with its history.

A task's history is the chain of the tasks that it follows up, oldest first; a forked session
begins with the chain of the task that it was forked from, up to the chosen event. Where the model
has summarized, only what its newest summary does not cover is read, so a follow-up costs the same
however long the conversation is; the task itself is always read whole. Reading costs queries: call
these in a thread or a command, never on the event loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from uuid import UUID

import msgspec

from agent.entries import Place
from agent.events import (
    TERMINAL_TYPES,
    AgentCompleted,
    AssistantMessageAdded,
    ContextCompacted,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
)
from agent.transcript import Transcript
from tasks import events
from tasks.events import Row
from tasks.models import Session, Task, TaskEvent

PAGE = 1000
LINKS = 100
"""Tasks that are looked up together on the way back."""
RUNNER_ENDS = TERMINAL_TYPES | {"approval_required"}


@dataclass(frozen=True, kw_only=True)
class Link:
    """A task of a chain and what counts of its log."""

    task_id: UUID
    after: int = 0
    up_to: int | None = None
    """None: to its end."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What to read for a task: oldest first, itself last."""

    links: list[Link]
    summary: ContextCompacted | None
    """It stands for everything before the first link, or within the task itself for what comes
    before its place."""


def rows_of(link: Link) -> Iterator[Row]:
    """The events of a link in order, page by page."""
    after = link.after
    while page := events.page(link.task_id, after, PAGE):
        for row in page:
            if link.up_to is not None and row.sequence > link.up_to:
                return
            yield row
        if len(page) < PAGE:
            return
        after = page[-1].sequence


def history_of(task: Task) -> History:
    """Back from the task to the beginning, or to where the newest summary ends."""
    if stands_alone(task):
        return History(links=[Link(task_id=task.id)], summary=None)
    links: list[Link] = []
    summary: ContextCompacted | None = None
    walk = _Walk(task)
    current: dict[str, Any] | None = walk.first
    up_to: int | None = None
    while current is not None:
        summary = summary or _summary_in(current, up_to)
        here = summary is not None and summary.to_task_id == str(current["id"])
        # The task itself is read whole: its calls, its limits and what it used count.
        after = summary.to_sequence if summary is not None and here and links else 0
        links.append(Link(task_id=current["id"], after=after, up_to=up_to))
        if here:
            break
        current, up_to = walk.before(current)
    return History(links=links[::-1], summary=summary)


def stands_alone(task: Task) -> bool:
    """It begins its session, and nothing of it was summarized: most tasks."""
    follows = task.follow_up_of_id is not None or task.session.forked_from_id is not None
    return not follows and task.compacted_at is None


def transcript_of(task: Task) -> Transcript:
    """Everything that the next model call of this task depends on."""
    history = history_of(task)
    summary = history.summary
    transcript = Transcript()
    within = summary is not None and summary.to_task_id == str(task.id)
    if summary is not None and not within:
        transcript.summarize(summary, 0)
    transcript.begins_late = summary is not None
    seconds = 0.0
    pruned = _pruned(task, history.links)
    for link in history.links:
        for remembered in _remembered(pruned.get(link.task_id)):
            transcript.apply(remembered)
        meter = WorkingTime()
        for row in meter.watch(rows_of(link)):
            if summary is not None and within and row.sequence > summary.to_sequence:
                transcript.settle()
                transcript.summarize(summary, len(transcript.entries))
                within = False
            transcript.place = Place(task_id=row.task_id, sequence=row.sequence)
            _apply(transcript, row)
        seconds = meter.seconds
    transcript.spent.seconds = seconds
    return transcript


def _pruned(task: Task, links: Sequence[Link]) -> dict[UUID, Task]:
    ids = [link.task_id for link in links]
    if ids == [task.pk] and task.status in Task.OPEN:  # nothing of it was pruned
        return {}
    return {task.pk: task for task in Task.objects.filter(pk__in=ids, tombstone__isnull=False)}


def _remembered(task: Task | None) -> list[StoredEvent]:
    """Of a task whose events were pruned: what was asked and answered, which its row still says."""
    if task is None or not task.goal:
        return []
    born = TaskCreated(goal=task.goal, session_id=str(task.session_id), trigger=task.trigger)
    if not task.final_answer:
        return [born, TaskCancelled(by="")]
    said = AssistantMessageAdded(step=1, block_id=f"pruned-{task.pk}", text=task.final_answer)
    return [born, said, AgentCompleted(final_answer=task.final_answer), TaskCompleted()]


def of_task_alone(task_id: UUID) -> Transcript:
    """The task without what went before it: for its end, which must not cost a long history."""
    transcript = Transcript()
    transcript.begins_late = True
    meter = WorkingTime()
    for row in meter.watch(rows_of(Link(task_id=task_id))):
        _apply(transcript, row)
    transcript.spent.seconds = meter.seconds
    return transcript


def _apply(transcript: Transcript, row: Row) -> None:
    event = events.typed(row)
    if transcript.begins_late and isinstance(event, ContextCompacted):
        # It is the newest summary, which stands at its place already, or an older one within it.
        transcript.spent.add(event)
    else:
        transcript.apply(event)


class _Walk:
    """From a task to the one before it, with few queries however many there are."""

    def __init__(self, task: Task) -> None:
        self._known: dict[UUID, dict[str, Any]] = {}
        self.first = self._find(task.id)

    def before(self, task: dict[str, Any]) -> tuple[dict[str, Any] | None, int | None]:
        """The task that this one continues, with the last sequence that counts (None: all)."""
        if task["follow_up_of_id"] is not None:
            return self._find(task["follow_up_of_id"]), None
        session = Session.objects.only("forked_from", "forked_at_sequence").get(
            pk=task["session_id"]
        )
        if session.forked_from_id is None:
            return None, None
        return self._find(session.forked_from_id), session.forked_at_sequence

    def _find(self, task_id: UUID) -> dict[str, Any]:
        if task_id not in self._known:
            place = Task.objects.filter(pk=task_id).values_list("session_id", "first_position")
            session_id, position = place.get()
            near = Task.objects.filter(session_id=session_id, first_position__lte=position)
            fields = ("id", "session_id", "follow_up_of_id", "compacted_at")
            for row in near.order_by("-first_position").values(*fields)[:LINKS]:
                self._known[row["id"]] = cast(dict[str, Any], row)
        return self._known[task_id]


def _summary_in(task: dict[str, Any], up_to: int | None) -> ContextCompacted | None:
    """The newest summary of the task's log up to there."""
    sequence = task["compacted_at"]
    if sequence is not None and up_to is not None and sequence > up_to:
        earlier = TaskEvent.objects.filter(task_id=task["id"], type="context_compacted")
        found = earlier.filter(sequence__lte=up_to).order_by("-sequence")
        sequence = found.values_list("sequence", flat=True).first()
    row = None if sequence is None else events.one(task["id"], sequence)
    event = None if row is None else events.typed(row)
    return event if isinstance(event, ContextCompacted) else None


class WorkingTime:
    """Seconds that a task was worked on: from each `task_started` to the last thing its run wrote.

    Waiting for a person or for a free server costs nothing. Neither does a clock that was set
    meanwhile or a machine that slept: what an event itself measured bounds what it can have taken.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._last: datetime | None = None
        """The last thing that the run wrote; None while nothing runs."""

    def watch(self, rows: Iterable[Row]) -> Iterator[Row]:
        for row in rows:
            self._look(row)
            yield row

    def _look(self, row: Row) -> None:
        if row.type == "task_started":
            self._last = row.created_at
        elif self._last is not None and row.type not in _NOT_WORK:
            gap = (row.created_at - self._last).total_seconds()
            self.seconds += gap if gap <= _UNMEASURED else min(gap, _measured(row) + _UNMEASURED)
            self._last = None if row.type in RUNNER_ENDS else row.created_at


def _measured(row: Row) -> float:
    """Seconds that the event says it took, by a clock that nobody sets."""
    fields = msgspec.json.decode(row.payload)
    return float(fields.get("duration_ms", 0) / 1000 + fields.get("delay_seconds", 0))


_UNMEASURED = 180.0
"""Seconds that may pass beside what is measured: a failed attempt's wait for its first byte."""
_NOT_WORK = frozenset({"approval_resolved", "approval_updated", "user_message", "task_recovered"})
"""What people and the recovery write, perhaps long after the run stopped."""
