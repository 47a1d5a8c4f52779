"""Beginning a run: whose turn it is, the fence, the lease, and `task_started`.

A task is begun by compare-and-swap under its row's lock: `run` grows by one, so whoever ran it
before can write nothing any more. Start, resume after an approval and takeover are one command. A
task that waits for nobody begins in the command that stores it (`Start`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from channels.db import database_sync_to_async
from django.db import DatabaseError
from django.db.models import Q
from django.utils import timezone

from agent.entries import Place
from agent.events import (
    ErrorInfo,
    ModelCallStarted,
    StoredEvent,
    TaskCreated,
    TaskRecovered,
    TaskStarted,
)
from agent.loop import first_call
from agent.transcript import Transcript
from tasks import endings, events, keeping, sessions, usage, wiring
from tasks.commands import lease
from tasks.events import Head
from tasks.lifecycle import move
from tasks.models import Approval, Session, Task, TaskEvent, Workspace
from tasks.statements import Joined, fetch
from tasks.writer import writer

logger = logging.getLogger(__name__)

MAX_RECOVERIES = 3
"""So many in a row without a finished model or tool call, and the task fails."""
PROGRESS_TYPES = ("model_call_finished", "tool_call_finished")
_ANSWERED = Q(type="approval_resolved", payload__contains='"kind":"unknown_effect"') & ~Q(
    payload__contains='"resolved_by":null'
)
"""A person decided what became of an effect: as often as they want it tried again, it is."""
_WHY_CONTINUED = "The process that ran it was stopped in good order."
_WHY_RECOVERED = "The process that ran it stopped, or did not say for too long that it lives."
_NOT_BEGUN = ErrorInfo(
    code="internal_error",
    message="The task could not be begun because of an error in Pilothouse itself.",
    hint="The server's log has the details; often a setting is wrong. Then retry the task.",
)
_GIVEN_UP = ErrorInfo(
    code="recovery_failed",
    message=f"It was taken over {MAX_RECOVERIES} times without getting any further.",
    hint="Look into the server's log for why the process stops, then retry the task.",
)
_locked_task = Joined(
    "JOIN {1} ON {1}.id = {0}.session_id JOIN {2} ON {2}.id = {1}.workspace_id WHERE {0}.id = %s",
    *(Task, Session, Workspace),
)
_EARLIER = f"""
    SELECT 1 FROM {Task._meta.db_table} WHERE session_id = %s AND first_position < %s
    AND status IN ('queued', 'running', 'waiting_approval') LIMIT 1"""  # noqa: S608


@dataclass(frozen=True, kw_only=True)
class Begun:
    """A task that this process may run now."""

    task: Task
    """With session and workspace; its `run` is ours."""
    choice: wiring.Choice
    kit: wiring.Kit
    transcript: Transcript | None
    """Of a task without a history; another one's takes a while to read."""
    run: int
    stored: events.Appended
    """What its beginning stored: `task_started`, and last what its engine tells first, if that is
    certain."""
    asked: ModelCallStarted | None = None
    """That."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Of a run and its task at once."""

    task: Task
    choice: wiring.Choice
    kit: wiring.Kit
    opening: tuple[StoredEvent, ...]
    asked: ModelCallStarted | None

    def begun(self, stored: events.Appended) -> Begun:
        """After COMMIT."""
        transcript = Transcript()
        for sequence, event in enumerate(self.opening, start=1):
            transcript.place = Place(task_id=str(self.task.pk), sequence=sequence)
            transcript.apply(event)
        return Begun(
            task=self.task,
            choice=self.choice,
            kit=self.kit,
            transcript=transcript,
            run=self.task.run,
            stored=stored,
            asked=self.asked,
        )


@dataclass(frozen=True, kw_only=True)
class Start:
    """Begins the run of a new session's first task in the command that stores both."""

    task_id: UUID
    worker: str
    models: wiring.Models

    def __call__(self, task: Task, born: TaskCreated) -> Beginning | None:
        """None: there is no model. It is begun like any other, which says so in its log."""
        try:
            choice = self.models.choose(task)
            kit = wiring.kit_for(task, choice)
        except wiring.NoModel:
            return None
        except DatabaseError:
            raise  # it is the whole command's
        except Exception:  # an error of ours is the run's, as ever: nobody's request fails for it
            logger.exception("The task cannot begin at once.")
            return None
        task.status, task.run, task.started_at = Task.Status.RUNNING, 1, timezone.now()
        for name, value in lease(self.worker).items():
            setattr(task, name, value)
        started, asked = _started(1, "start", choice, kit), _asked(choice, kit)
        opening = (born, started) if asked is None else (born, started, asked)
        return Beginning(task=task, choice=choice, kit=kit, opening=opening, asked=asked)


async def begin(
    task_id: UUID, worker: str, models: wiring.Models, *, takes: bool = False
) -> Begun | None:
    """Take the task, if its turn has come and nobody else has it. Fails it when there is no model.

    With `takes` also from a run whose lease has not ended: whoever calls knows that it died.
    """
    try:
        return await writer.run(partial(_begin, task_id, worker, models, takes=takes))
    except keeping.Unfinished:
        await database_sync_to_async(keeping.settle)(task_id)
    return await writer.run(partial(_begin, task_id, worker, models, takes=takes, looked=True))


def _begin(
    task_id: UUID, worker: str, models: wiring.Models, *, takes: bool, looked: bool = False
) -> Begun | None:
    """Command: → running, run + 1, lease, `task_started`."""
    task = _lock(task_id)
    reason = may_begin(task, worker, takes=takes)
    if reason is None:
        return None
    if not looked and reason == "recover":
        keeping.need_settled(task_id)
    if task.cancel_requested_at is not None:
        endings.cancel(task_id, canceller(task))
        return None
    if reason == "recover" and _recoveries(task) >= MAX_RECOVERIES:
        endings.fail(task_id, _GIVEN_UP)
        return None
    try:
        choice = models.choose(task)
    except wiring.NoModel as missing:
        endings.fail(task_id, ErrorInfo(code="no_model", message=str(missing), hint=missing.hint))
        return None
    return _take(task, reason, worker, choice)


def _take(task: Task, reason: str, worker: str, choice: wiring.Choice) -> Begun | None:
    kit = wiring.kit_for(task, choice)
    run = task.run + 1
    previous = task.lease_worker or None
    began = {} if task.started_at else {"started_at": timezone.now()}
    opening: list[StoredEvent] = [_started(run, reason, choice, kit)]
    if reason == "recover":
        why = _WHY_RECOVERED if previous else _WHY_CONTINUED
        opening.insert(0, TaskRecovered(reason=why, previous_worker=previous))
    fresh = reason == "start" and sessions.stands_alone(task)
    asked = _asked(choice, kit) if fresh else None
    if asked is not None:
        opening.append(asked)
    head = Head(sequence=task.last_sequence, hash=task.last_hash, time=task.last_event_at)
    ready = events.ready((task.pk, task.session_id), head, opening)
    changes = {**lease(worker), **began, **ready.fields}
    frm = [Task.Status(task.status)]
    if not move(task.pk, to=Task.Status.RUNNING, frm=frm, run=task.run, **changes):
        return None
    stored = events.store(ready)
    task.run = run
    return Begun(
        task=task,
        choice=choice,
        kit=kit,
        transcript=sessions.transcript_of(task) if fresh else None,
        run=run,
        stored=stored,
        asked=asked,
    )


def _asked(choice: wiring.Choice, kit: wiring.Kit) -> ModelCallStarted | None:
    """What the engine of a run without a history tells first, unless another limit may forbid it."""
    return None if usage.limited() else first_call(choice.name, kit.limits)


def _started(run: int, reason: str, choice: wiring.Choice, kit: wiring.Kit) -> TaskStarted:
    limits = kit.limits.as_payload()
    return TaskStarted(run=run, reason=reason, model=choice.name, limits=limits, mode=kit.mode)


def canceller(task: Task) -> str:
    """Who asked for the end of the task."""
    return task.cancel_requested_by.get_username() if task.cancel_requested_by else ""


def may_begin(task: Task, worker: str, *, takes: bool = False) -> str | None:
    """start, resume or recover; None when it is not its turn or somebody else's."""
    held = task.lease_expires_at is not None and task.lease_expires_at > timezone.now()
    if held and not takes and (task.status == Task.Status.RUNNING or task.lease_worker != worker):
        return None
    match task.status:
        case Task.Status.QUEUED:
            return "start" if _is_next(task) else None
        case Task.Status.WAITING_APPROVAL:
            pending = task.approvals.filter(status=Approval.Status.PENDING).exists()
            return None if pending else "resume"
        case Task.Status.RUNNING:
            return "recover"
        case _:
            return None


def _is_next(task: Task) -> bool:
    """One task of a session at a time, in the order of their creation."""
    return not fetch(_EARLIER, task.session_id, task.first_position)


def _recoveries(task: Task) -> int:
    """Recoveries since something was last achieved. A server that stopped in good order left no
    name, and its takeover says nothing about the task."""
    rows = TaskEvent.objects.filter(task_id=task.pk)
    achieved = rows.filter(Q(type__in=PROGRESS_TYPES) | _ANSWERED).order_by("-sequence").first()
    since = achieved.sequence if achieved else 0
    crashes = rows.filter(type="task_recovered", sequence__gt=since)
    return crashes.exclude(payload__contains='"previous_worker":null').count()


def give_up(task_id: UUID, worker: str, *, takes: bool = False) -> None:
    """Command: fail a task that this process could not begin because of an error of ours."""
    _fail_if_runnable(task_id, worker, _NOT_BEGUN, takes=takes)


def fail_recovery(task_id: UUID) -> None:
    """Command: it brought down whoever took it, again and again."""
    endings.fail(task_id, _GIVEN_UP)


def _fail_if_runnable(task_id: UUID, worker: str, error: ErrorInfo, *, takes: bool) -> None:
    if may_begin(_lock(task_id), worker, takes=takes) is not None:
        endings.fail(task_id, error)


def _lock(task_id: UUID) -> Task:
    """The task with its session and workspace, its own row locked."""
    found = _locked_task(task_id)
    if not found:
        raise Task.DoesNotExist("There is no such task.")
    task: Task
    ((task, task.session, task.session.workspace),) = found
    return task
