"""The streams of a task and of a session over HTTP.

A view identifies, looks once, and hands a generator that has begun to the server. While a stream is
open it holds no thread and no database connection: each read is one short hop. What ends it is
`follow()`'s business; a failure ends it too, is logged, and the client comes back by its cursor.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase

from streaming.asgi.streams import EventStream
from streaming.follow import PAGE_BYTES, follow, heard
from streaming.large import Kind, Read, once, shared
from streaming.rendering import Html
from streaming.source import Dress, Frame, Greeting, Source
from streaming.sse import parse_cursor
from tasks import access, events, service
from tasks.access import Principal
from tasks.api.errors import bug, in_our_shape, refusal, unavailable
from tasks.conf import conf
from tasks.errors import Invalid, NotFound, ServiceError
from tasks.lane import in_lane
from tasks.models import Approval, Session, Task
from tasks.writer import WriterUnavailable

logger = logging.getLogger(__name__)

Row = TypeVar("Row", Task, Session)
AsyncView = Callable[..., Coroutine[Any, Any, HttpResponseBase]]

FIRST_EVENTS = 8
FIRST_CHARS = 8 * 1024
"""Of a payload: more is read for all who want it together (`streaming.large`)."""
MAX_TASKS = 200
"""Of a session, in its `connected` event: the newest ones."""


def guarded(method: str) -> Callable[[AsyncView], AsyncView]:
    """Only this method; every refusal, and a bug of ours, in the API's one shape."""

    def guard(view: AsyncView) -> AsyncView:
        async def shown(request: HttpRequest, **ids: str) -> HttpResponseBase:
            if request.method != method:
                return HttpResponseNotAllowed([method])
            try:
                return await view(request, **ids)
            except ServiceError as error:
                return refusal(error)
            except (OperationalError, InterfaceError, WriterUnavailable) as error:
                return unavailable(request, error)
            except Exception as error:  # noqa: BLE001 - the boundary: a bug of ours, told as the API tells it
                return bug(request, error)

        return in_our_shape(shown)

    return guard


stream_view = guarded("GET")


@stream_view
async def task_stream(request: HttpRequest, task_id: str) -> HttpResponseBase:
    """Ends after the task's terminal event; 204 when it has ended and nothing is left to send."""
    with heard("task", task_id):
        principal, task, greeting = await asked(
            request, access.find_task, task_id, partial(_greet_at_cursor, request)
        )
        cursor = cursor_of(request)
        if greeting.over and cursor >= greeting.last:
            return HttpResponse(status=204, headers={"Cache-Control": "no-store"})
        await wake(task)
        source = task_source(principal, task.pk, greeting)
        return await respond(follow(source, cursor, dress=dress_of(request)), f"task {task.pk}")


@stream_view
async def session_stream(request: HttpRequest, session_id: str) -> HttpResponseBase:
    """Spans all tasks of the session and stays open between them."""
    with heard("session", session_id):
        session, source = await asked_session(request, session_id)
        chunks = follow(source, cursor_of(request), dress=dress_of(request))
        return await respond(chunks, f"session {session.pk}")


async def asked_session(request: HttpRequest, session_id: str) -> tuple[Session, Source]:
    """The session that they want to follow; call it while it is `heard`."""
    find = access.find_session
    principal, session, greeting = await asked(request, find, session_id, _greet_session)
    return session, _session_source(principal, session.pk, greeting)


async def asked(
    request: HttpRequest,
    find: Callable[[Principal, object], Row],
    row_id: str,
    greet: Callable[[Row], Greeting],
) -> tuple[Principal, Row, Greeting]:
    """Who asks, what they want to follow, and where it stands: in one hop to a thread."""

    def look() -> tuple[Principal, Row, Greeting]:
        principal = access.identify_now(request)
        principal.need("read")
        row = find(principal, row_id)
        return principal, row, greet(row)

    return await in_lane(look)


def cursor_of(request: HttpRequest) -> int:
    query = request.GET
    return parse_cursor(
        request.META.get("HTTP_LAST_EVENT_ID"), query.get("last_event_id"), query.get("after")
    )


def dress_of(request: HttpRequest) -> Dress | None:
    """`?render=html`: for pages."""
    match request.GET.get("render"):
        case None | "":
            return None
        case "html":
            return Html()
        case _:
            raise Invalid("invalid", "render is html, or not there.")


async def respond(chunks: AsyncGenerator[bytes, None], what: str) -> EventStream:
    """Begins to follow; the server does the rest."""
    logged = _logged(chunks, what)
    return EventStream(await anext(logged), logged)


async def _logged(chunks: AsyncGenerator[bytes, None], what: str) -> AsyncGenerator[bytes, None]:
    async with aclosing(chunks):
        try:
            async for chunk in chunks:
                yield chunk
                del chunk  # a silent stream keeps nothing that it has sent
        except (OperationalError, InterfaceError) as trouble:
            logger.error("The stream of %s lost the database: %s", what, trouble)
        except Exception:  # the stream's boundary: headers are gone, only the log can tell
            logger.exception("The stream of %s broke", what)


async def wake(task: Task) -> None:
    """Whoever opens the stream of a task that could run wants to see it run."""
    runnable = task.status == Task.Status.QUEUED
    if task.status == Task.Status.WAITING_APPROVAL:
        pending = task.approvals.filter(status=Approval.Status.PENDING)
        runnable = not await pending.aexists()
    if runnable:
        await service.ring(task.pk)


# ── what is followed ──────────────────────────────────────────────────────────────────────────


def greet_task(task: Task) -> Greeting:
    payload = {
        "status": task.status,
        "last_sequence": task.last_sequence,
        "heartbeat": conf().sse_heartbeat_seconds,
    }
    over = task.status in Task.TERMINAL
    return Greeting(last=task.last_sequence, over=over, payload=payload)


def _greet_at_cursor(request: HttpRequest, task: Task) -> Greeting:
    """With what a young task has stored: most streams are opened as soon as their task is made."""
    greeting, cursor = greet_task(task), cursor_of(request)
    if greeting.over or not 0 < greeting.last - cursor <= FIRST_EVENTS:
        return greeting
    rows = events.brief(task.pk, cursor, greeting.last, FIRST_CHARS)
    return replace(greeting, first=[events.frame(row) for row in rows])


def task_source(principal: Principal, task_id: UUID, greeting: Greeting) -> Source:

    def page(after: int, limit: int) -> list[Frame]:
        return [events.frame(row) for row in events.page(task_id, after, limit)]

    async def past(after: int, limit: int) -> events.Past:
        read = partial(events.past, task_id, after, limit, PAGE_BYTES)
        return await once(("past", str(task_id), after), read)

    async def newest(now: Principal) -> int:
        return (await access.visible_task(now, task_id)).last_sequence

    source = _source("task", task_id, principal, greeting, page, newest)
    return replace(source, past=past)


def _greet_session(session: Session) -> Greeting:
    payload = {
        "position": session.last_position,
        "tasks": _tasks_of(session.pk),
        "heartbeat": conf().sse_heartbeat_seconds,
    }
    return Greeting(last=session.last_position, over=False, payload=payload)


def _session_source(principal: Principal, session_id: UUID, greeting: Greeting) -> Source:

    def page(after: int, limit: int) -> list[Frame]:
        return [events.frame(row) for row in events.page_session(session_id, after, limit)]

    async def newest(now: Principal) -> int:
        return (await access.visible_session(now, session_id)).last_position

    return _source("session", session_id, principal, greeting, page, newest)


def _source(
    kind: Kind,
    row_id: UUID,
    principal: Principal,
    greeting: Greeting,
    page: Read,
    newest: Callable[[Principal], Awaitable[int]],
) -> Source:
    """`newest` gives the log's newest number to whoever may still see it; raises NotFound."""

    async def greet() -> Greeting:
        return greeting

    async def check() -> int | None:
        now = await access.renewed(principal)
        try:
            return None if now is None else await newest(now)
        except NotFound:
            return None

    return Source(
        kind=kind,
        id=str(row_id),
        page=shared(kind, str(row_id), page),
        greet=greet,
        check=check,
        heartbeat=conf().sse_heartbeat_seconds,
    )


def _tasks_of(session_id: UUID) -> list[dict[str, Any]]:
    newest = Task.objects.filter(session_id=session_id).order_by("-first_position", "-created_at")
    found = newest.values_list("id", "status", "last_sequence")[:MAX_TASKS]
    return [
        {"id": str(task_id), "status": status, "last_sequence": last}
        for task_id, status, last in reversed(found)
    ]
