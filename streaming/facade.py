"""The listening third of the chat API: ask, listen, confirm.

The session's stream with two live frames of its own, both made from what is stored, so that who
comes late gets them too: `confirm_required` once everything stored was sent and calls wait for a
person, and `done` behind each terminal event.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from agent.events import TERMINAL_TYPES
from streaming.follow import follow, heard
from streaming.source import Frame
from streaming.sse import live_frame
from streaming.views import asked_session, cursor_of, respond, stream_view
from tasks.api.schemas import ApprovalOut
from tasks.lane import in_lane
from tasks.models import Approval, Session


@stream_view
async def chat_stream(request: HttpRequest, session_id: str) -> HttpResponseBase:
    with heard("session", session_id):
        session, source = await asked_session(request, session_id)
        chunks = follow(source, cursor_of(request), _ChatFrames(session.pk))
        return await respond(chunks, f"session {session.pk}")


class _ChatFrames:
    """One reader's `confirm_required` and `done`."""

    def __init__(self, session_id: UUID) -> None:
        self._session_id = session_id
        self._ask = True
        """Somebody may have been asked since the last look."""

    def after(self, frame: Frame) -> bytes:
        self._ask |= frame.type == "approval_required"
        if frame.type not in TERMINAL_TYPES:
            return b""
        status = frame.type.removeprefix("task_")
        return live_frame("done", {"task_id": frame.task_id, "status": status}, frame.task_id)

    async def level(self, cursor: int) -> bytes:
        if not self._ask:
            return b""
        waiting = await in_lane(_waiting, self._session_id, cursor)
        if waiting is None:
            return b""
        self._ask = False
        return b"".join(
            live_frame("confirm_required", {"task_id": task_id, "approvals": asked}, task_id)
            for task_id, asked in waiting.items()
        )


def _waiting(session_id: UUID, cursor: int) -> dict[str, list[dict[str, Any]]] | None:
    """The pending approvals of a session, by task; None when there is more to send before them."""
    pending = Approval.objects.filter(task__session_id=session_id, status=Approval.Status.PENDING)
    rows = list(pending.select_related("task", "resolved_by"))
    # Looked at last: if nothing is stored behind the cursor now, nothing was when rows were read.
    if Session.objects.get(pk=session_id).last_position > cursor:
        return None
    waiting: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        waiting.setdefault(str(row.task_id), []).append(ApprovalOut.of(row).model_dump())
    return waiting
