"""What people and programs may ask for: create, cancel, say, retry, fork.

Every entrance comes through here and only creates or changes rows; nothing runs in a request. The
functions wait for their command to be committed, then ring the runner. Whether somebody may do it
is decided before, by `tasks.access`. Refusals are `tasks.errors.ServiceError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, get_args
from uuid import UUID

from asgiref.sync import sync_to_async
from channels.exceptions import ChannelFull
from channels.layers import get_channel_layer
from django.db import IntegrityError, transaction

from agent.errors import PathRefused
from agent.policy import Mode, strictest
from agent.text import clean
from agent.workspace import Workspace
from tasks import audit, commands, keeping, rates, wiring
from tasks.commands import Accepted, Created, SessionMoved, Start, TaskRequest
from tasks.conf import conf
from tasks.counters import counters
from tasks.errors import Conflict, Invalid, TooLarge
from tasks.models import Session, Task
from tasks.writer import writer

T = TypeVar("T")

MAX_GOAL_CHARS = 64 * 1024
MODES: tuple[str, ...] = get_args(Mode)
MAX_TRIES = 5
WHEN_BUSY = ("reject", "queue", "steer", "interrupt")
METERED = frozenset({Task.Trigger.API, Task.Trigger.CHAT, Task.Trigger.AGUI})
RETRIED = frozenset({Task.Status.FAILED, Task.Status.CANCELLED, Task.Status.BUDGET_EXCEEDED})


class Starter(Protocol):
    """The runner of this process: where it has a place, a new task runs as soon as it is stored."""

    def has_place(self) -> bool:
        """On its own event loop, and with nobody waiting for one."""

    def create(self, store: Callable[[Start], Awaitable[Accepted]]) -> asyncio.Future[Accepted]:
        """Store it and run it. Whoever stops waiting for the answer stops neither."""


@dataclass
class Here:
    """Of this process; set by the application."""

    runner: Starter | None = None
    """In a server that runs its tasks itself."""


here = Here()


async def create(
    request: TaskRequest, command: Callable[[TaskRequest], Accepted] = commands.create
) -> Created:
    """Store a task; it runs when its turn comes. Never waits for a model.

    `command` stores it, and perhaps more in the same moment.
    """
    if request.trigger in METERED:
        await _slow_down(request.owner_id)
    request = await _with_attachments(_checked(request))
    runner = here.runner
    if runner is not None and _is_new(request) and runner.has_place():
        accepted = await runner.create(partial(_begun, command, request))
    else:
        accepted = await _settled(partial(command, request))
    for task_id, message in accepted.rings:
        await ring(task_id, message)
    return accepted.created


def _is_new(request: TaskRequest) -> bool:
    """A task for which nobody waits, and which nobody takes for himself."""
    return request.session_id is None and not request.worker


async def _begun(
    command: Callable[[TaskRequest], Accepted], request: TaskRequest, start: Start
) -> Accepted:
    return await _settled(partial(command, replace(request, start=start)))


async def _slow_down(user_id: int) -> None:
    """Raises TooMany."""
    per_minute = conf().max_tasks_per_minute
    take = partial(rates.take, counters(), "tasks", str(user_id), per_minute)
    if conf().scale_out:
        await asyncio.to_thread(take)  # it waits for Redis
    else:
        take()


async def _settled(command: Callable[[], T]) -> T:
    """The command's result, tried again when another request changed what it had looked at."""
    for _ in range(MAX_TRIES - 1):
        try:
            return await writer.run(command)
        except (IntegrityError, SessionMoved):
            # The same Idempotency-Key, or a new task in the session: it is stored now, look again.
            continue
    return await writer.run(command)


async def cancel(task_id: UUID, user_id: int) -> None:
    """Stop a task. Idempotent; of a task that has ended nothing changes."""
    try:
        asked_runner = await writer.run(partial(commands.cancel, task_id, user_id))
    except keeping.Unfinished:
        await sync_to_async(keeping.settle)(task_id)
        asked_runner = await writer.run(partial(commands.cancel, task_id, user_id, looked=True))
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
    return await writer.run(partial(commands.steer, task_id, user_id, text))


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
            mode=_still_strict(task),
            limits=limits,
            model_profile_id=model_profile_id or task.model_profile_id,
        )
    )


async def fork(session_id: UUID, user_id: int, task_id: UUID, sequence: int) -> UUID:
    """A new session that continues from an event of this one. Nothing is copied."""
    return await writer.run(partial(commands.fork, session_id, user_id, task_id, sequence))


async def change_session(session_id: UUID, by: str, changes: Mapping[str, Any]) -> None:
    """Fields of its row by name; what differs from before is in the audit."""
    await sync_to_async(_change_session)(session_id, by, changes)


@transaction.atomic
def _change_session(session_id: UUID, by: str, changes: Mapping[str, Any]) -> None:
    session = Session.objects.select_for_update().get(pk=session_id)
    changed = {name: value for name, value in changes.items() if value != getattr(session, name)}
    if changed:
        _set(session, by, "session.changed", changed)


async def delete_session(session_id: UUID, by: str) -> None:
    """It disappears for everybody; its log stays for the audit. Not while something runs in it."""
    await sync_to_async(_delete_session)(session_id, by)


@transaction.atomic
def _delete_session(session_id: UUID, by: str) -> None:
    session = Session.objects.select_for_update().get(pk=session_id)
    if session.tasks.filter(status__in=Task.OPEN).exists():
        raise Conflict("session_busy", "A task of this session is not finished yet.")
    _set(session, by, "session.deleted", {"hidden": True})


def _set(session: Session, by: str, action: str, changes: Mapping[str, Any]) -> None:
    """Inside a transaction that holds the row: the fields, and the audit's entry of them."""
    Session.objects.filter(pk=session.pk).update(**changes)
    audit.record(
        audit.Change(
            action=action,
            by=by,
            object_type="session",
            object_id=str(session.pk),
            name=session.title,
            before={name: getattr(session, name) for name in changes},
            after=changes,
        )
    )


def _session_of(task_id: UUID) -> UUID:
    return Task.objects.values_list("session_id", flat=True).get(pk=task_id)


async def _with_attachments(request: TaskRequest) -> TaskRequest:
    """The goal names its files: they must be there, inside the workspace, when it is given."""
    if not request.attachments:
        return request
    row = await sync_to_async(commands.workspace_of)(request)
    await asyncio.to_thread(_check_files, Workspace(Path(row.root)), request.attachments)
    listed = "\n".join(f"- {path}" for path in request.attachments)
    return replace(request, goal=f"{request.goal}\n\nAttached files:\n{listed}")


def _check_files(workspace: Workspace, paths: Sequence[str]) -> None:
    for path in paths:
        try:
            is_file = workspace.stat(path).kind == "file"
        except (PathRefused, OSError) as error:
            reason = str(error) if isinstance(error, PathRefused) else "There is no such file."
            raise Invalid("attachment", f"{path}: {reason}", {"attachments": reason}) from error
        if not is_file:
            reason = "This is not a file."
            raise Invalid("attachment", f"{path}: {reason}", {"attachments": reason})


# ── checks and bells ──────────────────────────────────────────────────────────────────────────


def _checked(request: TaskRequest) -> TaskRequest:
    goal = _goal(request.goal, "goal")
    if request.when_busy not in WHEN_BUSY:
        message = f"when_busy must be one of {', '.join(WHEN_BUSY)}."
        raise Invalid("invalid", message, {"when_busy": "unknown"})
    if request.mode:
        _check_mode(request.mode, wiring.mode_of(request.trigger, ""))
    return request if goal == request.goal else replace(request, goal=goal)


def _goal(text: str, field: str) -> str:
    text = clean(text)
    if not text.strip():
        raise Invalid("invalid", f"{field} is empty: say what should be done.", {field: "empty"})
    if len(text) > MAX_GOAL_CHARS:
        raise TooLarge("too_large", f"{field} is longer than {MAX_GOAL_CHARS:,} characters.")
    return text


def _still_strict(task: Task) -> str:
    """The task's own mode, where the server has not become stricter since."""
    return wiring.mode_of(task.trigger, task.mode) if task.mode else ""


def _check_mode(mode: str, server: Mode) -> None:
    if mode not in MODES:
        raise Invalid("invalid", f"mode must be one of {', '.join(MODES)}.", {"mode": "unknown"})
    if strictest(cast(Mode, mode), server) != mode:
        message = f"The server's mode is {server}; a request can only be stricter."
        raise Invalid("mode_loosened", message, {"mode": message})


async def ring(task_id: UUID, message: str = "run.start") -> None:
    """Wake the runner of this process. Only a wake-up: the row is the truth, and a runner that
    misses this one finds it within half a second. In scale-out the job is the wake-up."""
    layer = get_channel_layer()
    if layer is None or conf().scale_out:
        return
    try:
        await layer.send("runs", {"type": message, "task_id": str(task_id)})
    except ChannelFull:
        return
