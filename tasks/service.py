"""What people and programs may ask for: create, cancel, say, retry, fork.

Every entrance comes through here and only creates or changes rows; nothing runs in a request. The
functions wait for their command to be committed, then ring the runner. Whether somebody may do it
is decided before, by `tasks.access`. Refusals are `tasks.errors.ServiceError`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, cast, get_args
from uuid import UUID, uuid4

from asgiref.sync import sync_to_async
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from agent.events import TaskCreated, UserMessageAdded
from agent.policy import Mode, strictest
from agent.text import clean, cut
from tasks import audit, endings, events, wiring
from tasks.conf import conf
from tasks.errors import Conflict, Invalid, NotFound, TooLarge, TooMany
from tasks.models import Session, Task, Workspace
from tasks.writer import writer

MAX_GOAL_CHARS = 64 * 1024
MODES: tuple[str, ...] = get_args(Mode)
WHEN_BUSY = ("reject", "queue", "steer", "interrupt")
RETRIED = frozenset({Task.Status.FAILED, Task.Status.CANCELLED, Task.Status.BUDGET_EXCEEDED})


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A goal and where it belongs."""

    goal: str
    owner_id: int
    trigger: str
    session_id: UUID | None = None
    """None: a new session in `workspace_id`, or in the owner's first workspace."""
    workspace_id: UUID | None = None
    follow_up_of: UUID | None = None
    when_busy: str = "reject"
    mode: str = ""
    """Tightens the server's; loosening is refused."""
    limits: dict[str, float] | None = None
    model_profile_id: UUID | None = None
    """None: the session's."""
    idempotency_key: str = ""
    body_digest: str = ""
    worker: str = ""
    """The process that will run it itself: nobody else may begin until its lease ends."""


@dataclass(frozen=True, kw_only=True)
class Created:
    """Where to find what was asked for."""

    task_id: UUID
    session_id: UUID
    status: str
    sequence: int
    position: int
    replayed: bool = False
    """True: the same request had been accepted before; nothing new was made."""

    @property
    def stream_url(self) -> str:
        return f"/api/tasks/{self.task_id}/stream"


async def create(request: TaskRequest) -> Created:
    """Store a task; it runs when its turn comes. Never waits for a model."""
    request = _checked(request)
    if request.when_busy == "interrupt" and request.session_id is not None:
        await _interrupt(request.session_id, request.owner_id)
    try:
        created = await writer.run(partial(_create, request))
    except IntegrityError:
        # Two requests with one Idempotency-Key at once: the other one is stored now.
        created = await writer.run(partial(_create, request))
    if not request.worker:
        await ring(created.task_id)
    return created


async def cancel(task_id: UUID, user_id: int) -> None:
    """Stop a task. Idempotent; of a task that has ended nothing changes."""
    asked_runner = await writer.run(partial(_cancel, task_id, user_id))
    await ring(task_id, "run.cancel" if asked_runner else "run.wake")


async def add_message(task_id: UUID, user_id: int, text: str, delivery: str) -> Created:
    """Say something to a task: `steer` reaches its next step, `queue` is a task after it."""
    text = _goal(text, "text")
    if delivery == "queue":
        session_id = await sync_to_async(_session_of)(task_id)
        return await create(
            TaskRequest(
                goal=text,
                owner_id=user_id,
                trigger=Task.Trigger.API,
                session_id=session_id,
                when_busy="queue",
            )
        )
    if delivery != "steer":
        raise Invalid("invalid", "delivery must be queue or steer.", {"delivery": "unknown"})
    return await writer.run(partial(_steer, task_id, user_id, text))


async def retry(
    task_id: UUID,
    user_id: int,
    limits: dict[str, float] | None = None,
    model_profile_id: UUID | None = None,
) -> Created:
    """Try again from where a failed, cancelled or over-budget task stopped, with the same model
    unless another one is named."""
    task = await sync_to_async(Task.objects.get)(pk=task_id)
    if task.status not in RETRIED:
        raise Conflict("not_retryable", f"A task that is {task.status} cannot be retried.")
    return await create(
        TaskRequest(
            goal=task.goal,
            owner_id=user_id,
            trigger=task.trigger,
            session_id=task.session_id,
            follow_up_of=task.id,
            mode=task.mode,
            limits=limits,
            model_profile_id=model_profile_id or task.model_profile_id,
        )
    )


async def fork(session_id: UUID, user_id: int, task_id: UUID, sequence: int) -> UUID:
    """A new session that continues from an event of this one. Nothing is copied."""
    return await writer.run(partial(_fork, session_id, user_id, task_id, sequence))


async def delete_session(session_id: UUID, by: str) -> None:
    """It disappears for everybody; its log stays for the audit. Not while something runs in it."""
    await sync_to_async(_delete_session)(session_id, by)


# ── commands ──────────────────────────────────────────────────────────────────────────────────


def lease(worker: str) -> dict[str, Any]:
    """Fields of a task that `worker` holds from now on."""
    until = timezone.now() + timedelta(seconds=conf().lease_seconds)
    return {"lease_worker": worker, "lease_expires_at": until}


def _create(request: TaskRequest) -> Created:
    before = _replayed(request)
    if before is not None:
        return before
    session = _session(request)
    busy = session.tasks.filter(status__in=Task.OPEN).order_by("first_position")
    current = busy.first()
    if current is not None and request.when_busy == "steer":
        return _steer(current.id, request.owner_id, request.goal)
    if current is not None and request.when_busy == "reject":
        raise Conflict(
            "session_busy",
            "A task of this session is not finished yet.",
            {"task_id": str(current.id), "status": current.status},
        )
    _refuse_full_queue(request.owner_id)
    return _store(request, session)


def _replayed(request: TaskRequest) -> Created | None:
    if not request.idempotency_key:
        return None
    task = Task.objects.filter(
        created_by_id=request.owner_id, idempotency_key=request.idempotency_key
    ).first()
    if task is None:
        return None
    if task.idempotency_digest != request.body_digest:
        raise Conflict(
            "idempotency_conflict", "This Idempotency-Key was used with another request."
        )
    return Created(
        task_id=task.id,
        session_id=task.session_id,
        status=str(Task.Status.QUEUED),
        sequence=1,
        position=task.first_position,
        replayed=True,
    )


def _session(request: TaskRequest) -> Session:
    """The session, its row locked: whether it is busy cannot change under us."""
    if request.session_id is not None:
        session = Session.objects.select_for_update().filter(pk=request.session_id).first()
        if session is None:
            raise NotFound("session")
        if session.hidden:
            raise NotFound("session")
        return session
    workspaces = Workspace.objects.all()
    if request.workspace_id is not None:
        workspace = workspaces.filter(pk=request.workspace_id).first()
    else:
        workspace = workspaces.filter(owner_id=request.owner_id).first()
    if workspace is None:
        raise Invalid("no_workspace", "There is no workspace to work in: register one first.")
    return Session.objects.create(
        owner_id=request.owner_id, workspace=workspace, title=title_of(request.goal)
    )


def title_of(goal: str) -> str:
    return cut(goal.strip().splitlines()[0].strip(), 80)


def _refuse_full_queue(owner_id: int) -> None:
    waiting = Task.objects.filter(created_by_id=owner_id, status=Task.Status.QUEUED).count()
    if waiting >= conf().max_queued_per_user:
        raise TooMany("queue_full", f"{waiting} of your tasks wait already.", retry_after=5)


def _store(request: TaskRequest, session: Session) -> Created:
    previous = _previous(request, session)
    task = Task.objects.create(
        session=session,
        goal=request.goal,
        trigger=request.trigger,
        mode=request.mode,
        limits=request.limits or {},
        model_profile_id=request.model_profile_id,
        follow_up_of_id=previous,
        idempotency_key=request.idempotency_key or None,
        idempotency_digest=request.body_digest,
        created_by_id=request.owner_id,
        **(lease(request.worker) if request.worker else {}),
    )
    if not session.title:
        Session.objects.filter(pk=session.pk).update(title=title_of(request.goal))
    born = TaskCreated(
        goal=request.goal,
        session_id=str(session.id),
        trigger=str(request.trigger),
        follow_up_of=None if previous is None else str(previous),
    )
    stored = events.append(task.id, [born])
    Task.objects.filter(pk=task.pk).update(first_position=stored.first_position)
    return Created(
        task_id=task.id,
        session_id=session.id,
        status=str(Task.Status.QUEUED),
        sequence=stored.last_sequence,
        position=stored.last_position,
    )


def _previous(request: TaskRequest, session: Session) -> UUID | None:
    if request.follow_up_of is not None:
        if not session.tasks.filter(pk=request.follow_up_of).exists():
            raise NotFound("task")
        return request.follow_up_of
    last = session.tasks.order_by("-first_position").first()
    return None if last is None else last.id


def _steer(task_id: UUID, user_id: int, text: str) -> Created:
    task = Task.objects.select_for_update().get(pk=task_id)
    if task.status in Task.TERMINAL:
        raise Conflict("task_ended", f"The task is {task.status}: send it as a new request.")
    by = User.objects.get(pk=user_id).get_username()
    said = UserMessageAdded(message_id=str(uuid4()), text=text, by=by)
    stored = events.append(task_id, [said])
    return Created(
        task_id=task.id,
        session_id=task.session_id,
        status=task.status,
        sequence=stored.last_sequence,
        position=stored.last_position,
    )


def _cancel(task_id: UUID, user_id: int) -> bool:
    """True: its run was asked to stop. A task without a living run is cancelled here."""
    task = Task.objects.select_for_update().get(pk=task_id)
    if task.status in Task.TERMINAL:
        return False
    if task.status == Task.Status.RUNNING and _alive(task):
        if task.cancel_requested_at is None:
            Task.objects.filter(pk=task_id).update(
                cancel_requested_at=timezone.now(), cancel_requested_by_id=user_id
            )
        return True
    endings.cancel(task_id, User.objects.get(pk=user_id).get_username())
    return False


def _alive(task: Task) -> bool:
    return task.lease_expires_at is not None and task.lease_expires_at > timezone.now()


async def _interrupt(session_id: UUID, user_id: int) -> None:
    """Everything of the session that is not finished stops; its runs within a moment."""
    open_tasks = Task.objects.filter(session_id=session_id, status__in=Task.OPEN)
    async for task_id in open_tasks.values_list("pk", flat=True):
        await cancel(task_id, user_id)


def _fork(session_id: UUID, user_id: int, task_id: UUID, sequence: int) -> UUID:
    origin = Session.objects.get(pk=session_id)
    task = origin.tasks.filter(pk=task_id).first()
    if task is None:
        raise NotFound("task")
    if not 1 <= sequence <= task.last_sequence:
        message = f"sequence must be between 1 and {task.last_sequence}."
        raise Invalid("invalid", message, {"sequence": message})
    branch = Session.objects.create(
        owner_id=user_id,
        workspace_id=origin.workspace_id,
        title=origin.title,
        forked_from=task,
        forked_at_sequence=sequence,
    )
    return branch.id


@transaction.atomic
def _delete_session(session_id: UUID, by: str) -> None:
    session = Session.objects.select_for_update().get(pk=session_id)
    if session.tasks.filter(status__in=Task.OPEN).exists():
        raise Conflict("session_busy", "A task of this session is not finished yet.")
    Session.objects.filter(pk=session_id).update(hidden=True)
    audit.record(
        audit.Change(
            action="session.deleted",
            by=by,
            object_type="session",
            object_id=str(session_id),
            name=session.title,
            before={"hidden": False},
            after={"hidden": True},
        )
    )


def _session_of(task_id: UUID) -> UUID:
    return Task.objects.values_list("session_id", flat=True).get(pk=task_id)


# ── checks and bells ──────────────────────────────────────────────────────────────────────────


def _checked(request: TaskRequest) -> TaskRequest:
    goal = _goal(request.goal, "goal")
    if request.when_busy not in WHEN_BUSY:
        message = f"when_busy must be one of {', '.join(WHEN_BUSY)}."
        raise Invalid("invalid", message, {"when_busy": "unknown"})
    if request.mode:
        _check_mode(request.mode, wiring.mode_of(request.trigger, ""))
    return replace(request, goal=goal)


def _goal(text: str, field: str) -> str:
    text = clean(text)
    if not text.strip():
        raise Invalid("invalid", f"{field} is empty: say what should be done.", {field: "empty"})
    if len(text) > MAX_GOAL_CHARS:
        raise TooLarge("too_large", f"{field} is longer than {MAX_GOAL_CHARS:,} characters.")
    return text


def _check_mode(mode: str, server: Mode) -> None:
    if mode not in MODES:
        raise Invalid("invalid", f"mode must be one of {', '.join(MODES)}.", {"mode": "unknown"})
    if strictest(cast(Mode, mode), server) != mode:
        message = f"The server's mode is {server}; a request can only be stricter."
        raise Invalid("mode_loosened", message, {"mode": message})


async def ring(task_id: UUID, message: str = "run.start") -> None:
    """Wake the runner of this process. Only a wake-up: the row is the truth, and a runner that
    misses this one finds it within half a second."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        await layer.send("runs", {"type": message, "task_id": str(task_id)})
    except ChannelFull:
        return
