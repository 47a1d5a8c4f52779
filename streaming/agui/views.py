"""`POST /agui` and `GET /agui/capabilities`.

A run is found, begun or resumed like everything else that creates and decides, and then followed.
Who leaves ends nothing; who asks for the same `runId` again gets the same run from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from streaming.agui import inputs
from streaming.agui.blocks import Out
from streaming.agui.capabilities import capabilities
from streaming.agui.feed import translated
from streaming.agui.inputs import RunInput
from streaming.agui.translation import Translation, custom
from streaming.follow import heard
from streaming.source import Greeting
from streaming.views import greet_task, guarded, respond, task_source, wake
from tasks import access, threads
from tasks.access import EVERY_ROLE, WRITERS, Principal
from tasks.api.edge import JsonParser, take_body
from tasks.api.errors import answer, body_of
from tasks.commands import TaskRequest
from tasks.errors import Conflict, Invalid, NotFound, ServiceError
from tasks.lane import in_lane
from tasks.models import AguiRun, Session, Task, Tombstone
from tasks.threads import Asked, Opening

Refused = Mapping[str, ServiceError]


@guarded("GET")
async def show_capabilities(request: HttpRequest) -> HttpResponseBase:
    """What this agent does, in AG-UI's words."""
    principal = await access.identify(request)
    principal.need("read")
    return answer(await in_lane(capabilities))


@guarded("POST")
async def run_agent(request: HttpRequest) -> HttpResponseBase:
    """Begin a run, or answer the questions that ended the one before; its events as they come."""
    principal, given, asked, run = await in_lane(_asked, request)
    refused: Refused = {}
    if run is None and given.replies:
        run, refused = await _resume(principal, given, asked)
    elif run is None:
        run = await threads.begin(asked, await in_lane(_request, principal, given))
    with heard("task", str(run.task_id)):
        task, greeting, opening = await in_lane(_look, principal, run)
        await wake(task)
        translation = Translation(given.thread, given.run, opening, given.parent)
        first = _first(translation, task, given, refused)
        source = task_source(principal, task.pk, greeting)
        chunks = translated(source, run.after, translation, first)
        return await respond(chunks, f"task {task.pk} by AG-UI")


def _asked(request: HttpRequest) -> tuple[Principal, RunInput, Asked, AguiRun | None]:
    """Who asks for what, and the run if it was asked for before."""
    take_body(request)
    principal = access.identify_now(request)
    principal.need("read")
    if "approve" not in principal.scopes:
        principal.need("write")
    given = inputs.read(_body(request))
    principal.need("approve" if given.replies else "write")
    asked = Asked(
        owner_id=principal.user_id, thread=given.thread, run=given.run, digest=given.digest
    )
    return principal, given, asked, threads.find(asked)


def _body(request: HttpRequest) -> object:
    try:
        return JsonParser().parse_body(request)
    except (ValueError, RecursionError):
        raise Invalid("invalid", "The body is not JSON.") from None


def _request(principal: Principal, given: RunInput) -> TaskRequest:
    """The goal, and where it belongs, within the principal's reach."""
    session, workspace_id = _session(principal, given.thread), None
    if given.wishes.workspace_id is not None:
        workspace = access.find_workspace(principal, given.wishes.workspace_id, WRITERS)
        workspace_id = workspace.pk
    if session is not None and workspace_id not in (None, session.workspace_id):
        message = "threadId and workspace_id do not belong together."
        raise Invalid("invalid", message, {"forwardedProps.pilothouse": message})
    return TaskRequest(
        goal=given.goal,
        owner_id=principal.user_id,
        by=principal.username,
        trigger=Task.Trigger.AGUI,
        session_id=None if session is None else session.pk,
        workspace_id=workspace_id,
        mode=given.wishes.mode or "",
    )


def _session(principal: Principal, name: str) -> Session | None:
    """The thread's session. A session's own id names it as well, where the principal sees it."""
    thread = threads.thread_of(principal.user_id, name)
    if thread is None:
        try:
            access.find_session(principal, name, EVERY_ROLE)
        except NotFound:
            return None
    wanted = name if thread is None else thread.session_id
    return access.find_session(principal, wanted, WRITERS)


async def _resume(
    principal: Principal, given: RunInput, asked: Asked
) -> tuple[AguiRun, dict[str, ServiceError]]:
    rows = await in_lane(threads.answerable, principal, given.thread, given.replies)
    task_id = next(iter(rows.values())).task_id
    replies = [(row.pk, given.replies[name]) for name, row in rows.items()]
    run, refused = await threads.resume(asked, task_id, replies)
    unknown = given.replies.keys() - rows.keys()
    return run, refused | {name: NotFound("approval") for name in unknown}


def _look(principal: Principal, run: AguiRun) -> tuple[Task, Greeting, Opening]:
    task = access.find_task(principal, run.task_id)
    if task.status in Task.TERMINAL and Tombstone.objects.filter(task=task).exists():
        raise Conflict("pruned", "The log of this run was old, and is deleted.")
    return task, greet_task(task), threads.opening(run)


def _first(translation: Translation, task: Task, given: RunInput, refused: Refused) -> list[Out]:
    about = {
        "task_id": str(task.pk),
        "session_id": str(task.session_id),
        "stream_url": f"/api/tasks/{task.pk}/stream",
    }
    first = [translation.begin(about)]
    if given.skipped:
        first.append(custom("content_skipped", {"places": list(given.skipped)}))
    for name, error in refused.items():
        first.append(custom("answer_refused", {"interruptId": name, **body_of(error)}))
    return first
