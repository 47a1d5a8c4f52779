"""Sessions over HTTP, and their events."""

from __future__ import annotations

from typing import Annotated, Any

from asgiref.sync import sync_to_async
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router
from ninja.responses import Status

from tasks import access, events, members, policy_in_force, profiles, service, standing
from tasks.access import OWNER_ONLY, Principal
from tasks.api import paging
from tasks.api.edge import who
from tasks.api.errors import raw
from tasks.api.html import Render, bodies
from tasks.api.paging import DEFAULT_LIMIT, Cursor, Limit, Number
from tasks.api.schemas import (
    EventList,
    ForkIn,
    HandOverIn,
    PolicyOut,
    RunningList,
    RunningOut,
    SessionIn,
    SessionList,
    SessionOut,
    SessionPatch,
    answers,
)
from tasks.errors import Invalid, NotFound
from tasks.models import ModelProfile, Session, Task, Workspace

router = Router(tags=["sessions"])


@router.post("", response=answers(201, SessionOut, 404))
async def create_session(request: HttpRequest, payload: SessionIn) -> Status[Any]:
    """A new conversation, in the given workspace or in your first one."""
    principal = who(request)
    if payload.workspace_id is not None:
        workspace = await access.usable_workspace(principal, payload.workspace_id)
    else:
        workspace = await _first_workspace(principal)
    session = await Session.objects.acreate(
        owner_id=principal.user_id, workspace=workspace, title=payload.title.strip()
    )
    return Status(201, await _read(principal, session.id))


async def _first_workspace(principal: Principal) -> Workspace:
    first = await Workspace.objects.filter(owner_id=principal.user_id).afirst()
    if first is None:
        raise Invalid("no_workspace", "There is no workspace to work in: register one first.")
    return first


@router.get("", response=answers(200, SessionList))
async def list_sessions(
    request: HttpRequest,
    archived: Annotated[bool, Query()] = False,
    q: Annotated[str, Query(max_length=200)] = "",
    workspace_id: Annotated[str | None, Query()] = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> SessionList:
    """The sessions that you may see, the last active first; `q` looks into titles, goals, answers."""
    principal = who(request)
    # `IN`, because SQLite finds no index for the bare `NOT archived` that equality would become.
    rows = access.visible_sessions(principal).filter(archived__in=[archived])
    if workspace_id is not None:
        find = sync_to_async(access.find_workspace)
        rows = rows.filter(workspace=await find(principal, workspace_id))
    if q.strip():
        rows = rows.filter(_says(q.strip()))
    return await sync_to_async(_list)(rows, cursor, limit, principal)


def _says(text: str) -> Q:
    said = Q(goal__icontains=text) | Q(final_answer__icontains=text)
    tasks = Task.objects.filter(said, session=OuterRef("pk"))
    return Q(title__icontains=text) | Q(Exists(tasks))


def _list(
    rows: QuerySet[Session], cursor: str | None, limit: int, principal: Principal
) -> SessionList:
    rows = rows.select_related("owner", "workspace")
    items, following = paging.page(rows, "updated_at", cursor, limit, principal)
    standings = standing.of_sessions(items)
    return SessionList(
        items=[SessionOut.of(row, standings[row.pk]) for row in items], next=following
    )


@router.get("/running", response=answers(200, RunningList))
async def running_sessions(request: HttpRequest) -> RunningList:
    """What is not finished, in every session that you may see."""
    found = await sync_to_async(access.open_tasks)(who(request))
    return RunningList(
        items=[
            RunningOut(session_id=str(task.session_id), task_id=str(task.id), status=task.status)
            for task in found
        ]
    )


@router.get("/{session_id}", response=answers(200, SessionOut, 404))
async def read_session(request: HttpRequest, session_id: str) -> SessionOut:
    return await _read(who(request), session_id)


@router.patch("/{session_id}", response=answers(200, SessionOut, 404))
async def change_session(
    request: HttpRequest, session_id: str, payload: SessionPatch
) -> SessionOut:
    """Rename it, move it to the archive and back, or let it ask another model."""
    session = await access.writable_session(who(request), session_id)
    changes = payload.model_dump(exclude_none=True, exclude={"model_profile_id"})
    if "model_profile_id" in payload.model_fields_set:
        profile = await _profile(payload.model_profile_id)
        changes["model_profile_id"] = None if profile is None else profile.pk
    await service.change_session(session.id, who(request).username, changes)
    return await _read(who(request), session.id)


async def _profile(wanted: str | None) -> ModelProfile | None:
    return None if wanted is None else await sync_to_async(profiles.find)(wanted)


@router.delete("/{session_id}", response=answers(204, None, 404, 409))
async def delete_session(request: HttpRequest, session_id: str) -> Status[Any]:
    """It disappears for everybody; its log stays for the audit. Not while something runs in it."""
    session = await access.writable_session(who(request), session_id)
    await service.delete_session(session.id, who(request).username)
    return Status(204, None)


@router.get("/{session_id}/policy", response=answers(200, PolicyOut, 404))
async def read_policy(request: HttpRequest, session_id: str) -> PolicyOut:
    """What its tasks may do unasked, what is asked, what is refused, and what says so."""
    return await sync_to_async(_policy)(who(request), session_id)


def _policy(principal: Principal, session_id: str) -> PolicyOut:
    return PolicyOut.of(policy_in_force.in_session(access.find_session(principal, session_id)))


@router.post("/{session_id}/handover", response=answers(200, SessionOut, 404))
async def hand_over_session(
    request: HttpRequest, session_id: str, payload: HandOverIn
) -> SessionOut:
    """It becomes a colleague's who may work in its workspace. Its owner may, and the workspace's."""
    return await sync_to_async(_hand_over)(who(request), session_id, payload.username)


def _hand_over(principal: Principal, session_id: str, username: str) -> SessionOut:
    session = access.find_session(principal, session_id, OWNER_ONLY)
    members.hand_over(session.pk, username, principal.username)
    session.refresh_from_db()
    return SessionOut.of(session, standing.of_session(session))


@router.post("/{session_id}/fork", response=answers(201, SessionOut, 404))
async def fork_session(request: HttpRequest, session_id: str, payload: ForkIn) -> Status[Any]:
    """A new session of yours that goes on from an event of this one. Nothing is copied."""
    principal = who(request)
    session = await access.writable_session(principal, session_id)
    task = await access.visible_task(principal, payload.task_id)
    if task.session_id != session.id:
        raise NotFound("task")
    fork = await service.fork(session.id, principal.user_id, task.id, payload.sequence)
    return Status(201, await _read(principal, fork))


@router.get("/{session_id}/events", response=answers(200, EventList, 404))
async def list_session_events(
    request: HttpRequest,
    session_id: str,
    after: Number = 0,
    before: Annotated[int | None, Query(ge=1, le=paging.MAX_NUMBER)] = None,
    limit: Limit = DEFAULT_LIMIT,
    render: Render = None,
) -> HttpResponse:
    """Stored events of all its tasks by position, whole and in ascending order.

    Behind `after`; or, with `before`, the last ones ahead of it, for reading backwards. `next` is
    the value for the next call in the same direction.
    """
    page = sync_to_async(_events)
    return raw(await page(who(request), session_id, after, before, limit, render))


def _events(
    principal: Principal,
    session_id: str,
    after: int,
    before: int | None,
    limit: int,
    render: Render,
) -> bytes:
    session = access.find_session(principal, session_id)
    found = events.page_session(session.id, after, limit + 1, before)
    more = len(found) > limit
    rows = found[:limit] if before is None else found[-limit:]
    edge = rows[-1 if before is None else 0].position if more else None
    return paging.numbered(bodies(rows, render), edge)


async def _read(principal: Principal, session_id: object) -> SessionOut:
    return await sync_to_async(_card)(principal, session_id)


def _card(principal: Principal, session_id: object) -> SessionOut:
    session = access.find_session(principal, session_id)
    return SessionOut.of(session, standing.of_session(session))
