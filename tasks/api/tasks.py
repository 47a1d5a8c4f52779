"""Tasks over HTTP: create, list, read, cancel, retry, talk to. Nothing here waits for a model."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Header, Query, Router
from ninja.responses import Status

from agent.text import clean
from tasks import access, events, profiles, service, standing
from tasks.access import Principal
from tasks.api import paging
from tasks.api.edge import who
from tasks.api.errors import raw
from tasks.api.html import Render, bodies
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit, Number
from tasks.api.schemas import (
    CreatedOut,
    EventList,
    EventOut,
    MessageIn,
    RetryIn,
    TaskIn,
    TaskList,
    TaskOut,
    answers,
)
from tasks.commands import TaskRequest
from tasks.errors import Invalid, NotFound
from tasks.lane import in_lane
from tasks.models import Task

router = Router(tags=["tasks"])

TaskStatus = Literal[
    "queued",
    "running",
    "waiting_approval",
    "completed",
    "failed",
    "cancelled",
    "budget_exceeded",
]
MAX_KEY = 200


@router.post("", response=answers(202, CreatedOut, 404, 409, 413, 429))
async def create_task(
    request: HttpRequest,
    payload: TaskIn,
    idempotency_key: Annotated[str, Header(alias="Idempotency-Key", max_length=MAX_KEY)] = "",
) -> Status[CreatedOut]:
    """Create a task. It runs in the background; follow `stream_url`.

    With an `Idempotency-Key` the same body gets the same answer, another body 409.
    """
    wanted = await _request(who(request), payload)
    if idempotency_key:
        body = payload.model_dump_json(exclude_unset=True)
        digest = hashlib.sha256(body.encode()).hexdigest()
        wanted = replace(wanted, idempotency_key=clean(idempotency_key), body_digest=digest)
    return Status(202, CreatedOut.of(await service.create(wanted)))


async def _request(principal: Principal, payload: TaskIn) -> TaskRequest:
    """The body as the service knows it, every id in it within the principal's reach."""
    session_id, workspace_id, follow_up_of = None, None, None
    if payload.follow_up_of is not None:
        task = await access.writable_task(principal, payload.follow_up_of)
        follow_up_of, session_id = task.id, task.session_id
    if payload.session_id is not None:
        session = await access.writable_session(principal, payload.session_id)
        _refuse_other(session_id, session.id, "follow_up_of", "session_id")
        session_id = session.id
    if payload.workspace_id is not None:
        workspace = await access.usable_workspace(principal, payload.workspace_id)
        workspace_id = workspace.id
        if session_id is not None:
            session = await access.writable_session(principal, session_id)
            _refuse_other(session.workspace_id, workspace_id, "session_id", "workspace_id")
    profile = await _profile(payload.model)
    return TaskRequest(
        goal=payload.goal,
        owner_id=principal.user_id,
        by=principal.username,
        # A browser's cookie means the chat page; programs carry a token.
        trigger=Task.Trigger.CHAT if principal.session_key else Task.Trigger.API,
        session_id=session_id,
        workspace_id=workspace_id,
        follow_up_of=follow_up_of,
        when_busy=payload.when_busy,
        mode=payload.mode or "",
        attachments=tuple(payload.attachments),
        model_profile_id=profile,
    )


async def _profile(wanted: str | None) -> UUID | None:
    return None if wanted is None else (await in_lane(profiles.find, wanted)).pk


def _refuse_other(one: UUID | None, other: UUID, first: str, second: str) -> None:
    if one is not None and one != other:
        message = f"{first} and {second} do not belong together."
        raise Invalid("invalid", message, {first: message, second: message})


@router.get("", response=answers(200, TaskList))
async def list_tasks(
    request: HttpRequest,
    status: Annotated[TaskStatus | None, Query()] = None,
    session_id: Annotated[str | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> TaskList:
    """The tasks that you may see, newest first."""
    principal = who(request)
    rows = access.visible_tasks(principal)
    if status is not None:
        rows = rows.filter(status=status)
    if session_id is not None:
        rows = rows.filter(session=await access.visible_session(principal, session_id))
    items, following = await in_lane(paging.page, rows, "created_at", cursor, limit, principal)
    places = await in_lane(standing.places, items)
    return TaskList(items=[TaskOut.of(task, places.get(task.pk)) for task in items], next=following)


@router.get("/{task_id}", response=answers(200, TaskOut, 404))
async def read_task(request: HttpRequest, task_id: str) -> TaskOut:
    task = await access.visible_task(who(request), task_id)
    if task.status != Task.Status.QUEUED:
        return TaskOut.of(task)
    places = await in_lane(standing.places, [task])
    return TaskOut.of(task, places.get(task.pk))


@router.get("/{task_id}/events", response=answers(200, EventList, 404))
async def list_events(
    request: HttpRequest,
    task_id: str,
    after: Number = 0,
    limit: Limit = DEFAULT_LIMIT,
    render: Render = None,
) -> HttpResponse:
    """Stored events behind the sequence `after`, whole."""
    return raw(await in_lane(_events, who(request), task_id, after, limit, render))


def _events(principal: Principal, task_id: str, after: int, limit: int, render: Render) -> bytes:
    task = access.find_task(principal, task_id)
    found = events.page(task.id, after, limit + 1)
    rows = found[:limit]
    following = rows[-1].sequence if len(found) > limit else None
    return paging.numbered(bodies(rows, render), following)


@router.get("/{task_id}/events/{sequence}", response=answers(200, EventOut, 404))
async def read_event(request: HttpRequest, task_id: str, sequence: str) -> HttpResponse:
    """One stored event, whole."""
    return raw(await in_lane(_event, who(request), task_id, sequence))


def _event(principal: Principal, task_id: str, sequence: str) -> bytes:
    task = access.find_task(principal, task_id)
    exists = sequence.isascii() and sequence.isdecimal() and len(sequence) < 19
    row = events.one(task.id, int(sequence)) if exists else None
    if row is None:
        raise NotFound("event")
    return events.wire_body(row)


@router.post("/{task_id}/cancel", response=answers(202, TaskOut, 404))
async def cancel_task(request: HttpRequest, task_id: str) -> Status[TaskOut]:
    """Stop a task. Asking twice, or of a task that has ended, changes nothing."""
    principal = who(request)
    task = await access.writable_task(principal, task_id)
    await service.cancel(task.id, principal.user_id)
    return Status(202, TaskOut.of(await access.visible_task(principal, task.id)))


@router.post("/{task_id}/retry", response=answers(202, CreatedOut, 404, 409, 429))
async def retry_task(
    request: HttpRequest, task_id: str, payload: RetryIn | None = None
) -> Status[CreatedOut]:
    """A new task that goes on where a failed, cancelled or over-budget one stopped."""
    principal = who(request)
    task = await access.writable_task(principal, task_id)
    payload = payload or RetryIn()
    limits = payload.limits.model_dump(exclude_none=True) if payload.limits else None
    again = await service.retry(
        task.id, principal.user_id, limits, model_profile_id=await _profile(payload.model)
    )
    return Status(202, CreatedOut.of(again))


@router.post("/{task_id}/messages", response=answers(202, CreatedOut, 404, 409, 413, 429))
async def send_message(
    request: HttpRequest, task_id: str, payload: MessageIn
) -> Status[CreatedOut]:
    """Say something: `steer` reaches the task's next step, `queue` is a task after it."""
    principal = who(request)
    task = await access.writable_task(principal, task_id)
    said = await service.add_message(task.id, principal.user_id, payload.text, payload.delivery)
    return Status(202, CreatedOut.of(said))
