"""Undoing what one call changed in files: shown first, then confirmed."""

from __future__ import annotations

from asgiref.sync import sync_to_async
from django.http import HttpRequest
from ninja import Router

from tasks import access, undoing
from tasks.access import Principal
from tasks.api.edge import Identity, who
from tasks.api.schemas import UndoIn, UndoOut, answers
from tasks.errors import NotFound
from tasks.models import Task
from tasks.undoing import Call

of_task = Router(tags=["tasks"])


@of_task.get("/{task_id}/events/{sequence}/undo", response=answers(200, UndoOut, 404))
async def preview_undo(request: HttpRequest, task_id: str, sequence: str) -> UndoOut:
    """What undoing would do to files now; `sequence` is of the call's `tool_call_finished`."""
    principal = who(request)
    call = await _call(principal, task_id, sequence)
    may = await sync_to_async(access.may_take_back)(call.task, call.capability, principal)
    return UndoOut.of(call, await undoing.preview(call), can_undo=may)


@of_task.post(
    "/{task_id}/events/{sequence}/undo",
    auth=Identity("approve"),
    response=answers(200, UndoOut, 404, 409),
)
async def undo_call(request: HttpRequest, task_id: str, sequence: str, payload: UndoIn) -> UndoOut:
    """Undo it, as the preview with this digest showed it; 409 `stale` if a file changed since."""
    principal = who(request)
    call = await _call(principal, task_id, sequence)
    if not await sync_to_async(access.may_take_back)(call.task, call.capability, principal):
        raise NotFound("call")
    done = await undoing.take_back(call, principal.username, payload.digest)
    return UndoOut.of(await undoing.find(call.task, call.sequence), done, can_undo=True)


async def _call(principal: Principal, task_id: str, sequence: str) -> Call:
    task = await sync_to_async(_task)(principal, task_id)
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) < 19):
        raise NotFound("call")
    return await undoing.find(task, int(sequence))


def _task(principal: Principal, task_id: str) -> Task:
    seen = access.find_task(principal, task_id)
    return Task.objects.select_related("session__workspace").get(pk=seen.pk)
