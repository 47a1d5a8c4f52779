"""AG-UI's threads and runs: a client's own names for our sessions and for pieces of our logs.

A thread is a session. A run is a piece of one task's log, from where it begins to the next stop or
the end, so asking for a run again reads the same piece again. Nothing is kept of what was sent:
where a run ends is folded from the log (`Questions`).

1. A first run makes session, task and names in one command; of two that come at once one does.
2. A run that answers questions goes through `tasks.decisions`, like any other answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.db import IntegrityError

from tasks import access, commands, decisions, service
from tasks.access import Principal
from tasks.approvals import Reply
from tasks.commands import Accepted, Created, TaskRequest
from tasks.errors import Conflict, NotFound, ServiceError
from tasks.lane import in_lane
from tasks.models import AguiRun, AguiThread, Approval, TaskEvent
from tasks.writer import writer

Payload = Mapping[str, Any]

MAX_ANSWERS = 100
"""Of one run, as of one request to `POST /api/approvals/resolve`."""

ASKING = ("approval_required", "approval_resolved", "task_started")
WHILE_STOPPED = frozenset({"approval_required", "approval_updated"})
OVERTAKEN = frozenset({"already_resolved", "expired", "stale"})
"""Refusals of an answer that came too late: the run goes on with what became of its question."""
CALLS = ("tool_call_requested", "tool_call_finished")


class Questions:
    """Folded from a task's log: what it waits for, and where it stopped for that."""

    def __init__(self) -> None:
        self.pending: dict[str, Payload] = {}
        """Approval id -> payload of its `approval_required`, in the order of asking."""
        self._stopped = False

    def stops_before(self, type_: str, payload: Payload) -> bool:
        """Whether the run had stopped before this event: a stop is one or several questions, with
        the ends of answered ones that they replace, and nothing else in between."""
        if type_ in WHILE_STOPPED:
            return False
        replaced = type_ == "approval_resolved" and payload["approval_id"] not in self.pending
        return self.stands and not replaced

    @property
    def stands(self) -> bool:
        """The run has stopped, and somebody is asked."""
        return self._stopped and bool(self.pending)

    def apply(self, type_: str, payload: Payload) -> None:
        if type_ == "approval_required":
            self._stopped = True
            self.pending[payload["approval_id"]] = payload
        elif type_ == "approval_resolved":
            self.pending.pop(payload["approval_id"], None)
        elif type_ == "task_started":
            self._stopped = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A run, by the names that its client gave it."""

    owner_id: int
    thread: str
    run: str
    digest: str
    """Of everything that makes it this run and no other."""


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What stood in the log where a run begins."""

    questions: Questions
    answered: frozenset[str]
    """Approval ids: the run does not stop for these again."""
    blocks: dict[str, str]
    """Calls without a result: tool_call_id -> block_id."""


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


def thread_of(owner_id: int, name: str) -> AguiThread | None:
    return AguiThread.objects.filter(owner_id=owner_id, name=name).first()


def find(asked: Asked) -> AguiRun | None:
    """The run, if it was asked for before. Conflict when it was another one."""
    run = AguiRun.objects.filter(
        thread__owner_id=asked.owner_id, thread__name=asked.thread, name=asked.run
    ).first()
    if run is not None and run.digest != asked.digest:
        raise Conflict("idempotency_conflict", "This runId was used with another request.")
    return run


async def begin(asked: Asked, request: TaskRequest) -> AguiRun:
    """A new task in the thread's session; in the one of `request`, or a new one, for a new thread.

    Raises what `service.create` raises: Conflict `session_busy` while another run is not finished.
    """
    await service.create(request, partial(_begin, asked))
    return await in_lane(_found, asked)


def _begin(asked: Asked, request: TaskRequest) -> Accepted:
    """Command: the task and its names, or what is there already."""
    known = find(asked)
    if known is not None:
        return Accepted(created=_again(known))
    thread = thread_of(asked.owner_id, asked.thread)
    if thread is not None:
        request = replace(request, session_id=thread.session_id)
    accepted = commands.create(request)
    created = accepted.created
    if thread is None:
        # Refused by its constraint when another one was quicker: then everything is tried anew.
        thread = AguiThread.objects.create(
            owner_id=asked.owner_id, name=asked.thread, session_id=created.session_id
        )
    thread.runs.create(name=asked.run, task_id=created.task_id, digest=asked.digest)
    return accepted


def _again(run: AguiRun) -> Created:
    task = run.task
    return Created(
        task_id=task.id,
        session_id=task.session_id,
        status=task.status,
        sequence=1,
        position=task.first_position,
        replayed=True,
    )


def _found(asked: Asked) -> AguiRun:
    run = find(asked)
    assert run is not None
    return run


# ── answers ───────────────────────────────────────────────────────────────────────────────────


def answerable(principal: Principal, name: str, approval_ids: Iterable[str]) -> dict[str, Approval]:
    """Those of the ids that name questions of one task of this thread, the newest that asks, and
    that the principal may decide. NotFound when there is none."""
    thread = thread_of(principal.user_id, name)
    found: dict[str, Approval] = {}
    for approval_id in approval_ids if thread else ():
        try:
            row = access.find_approval(principal, approval_id, access.APPROVERS)
        except NotFound:
            continue
        if thread and row.task.session_id == thread.session_id:
            found[approval_id] = row
    if not found:
        raise NotFound("approval")
    task_id = max(found.values(), key=lambda row: row.created_at).task_id
    return {given: row for given, row in found.items() if row.task_id == task_id}


async def resume(
    asked: Asked, task_id: UUID, replies: Sequence[tuple[UUID, Reply]]
) -> tuple[AguiRun, dict[str, ServiceError]]:
    """Answer questions of a task; the run behind their stop, and the answers that did not count.

    Raises the first refusal when no answer counts, unless all came too late: then the run shows
    what was decided instead.
    """
    outcomes = await decisions.resolve_many(asked.owner_id, replies)
    refused: dict[str, ServiceError] = {}
    answered: list[str] = []
    for (approval_id, _), outcome in zip(replies, outcomes, strict=True):
        if isinstance(outcome, ServiceError):
            refused[str(approval_id)] = outcome
            settled = outcome.code in OVERTAKEN
        else:
            settled = outcome.status != Approval.Status.PENDING
        if settled:
            answered.append(str(approval_id))
    wrong = [error for error in refused.values() if error.code not in OVERTAKEN]
    if len(wrong) == len(replies):
        raise wrong[0]
    asked_about = {str(approval_id) for approval_id, _ in replies}
    try:
        run = await writer.run(partial(_resume, asked, task_id, asked_about, answered))
    except IntegrityError:  # the same request, twice at once
        run = await in_lane(_found, asked)
    return run, refused


def _resume(asked: Asked, task_id: UUID, asked_about: set[str], answered: list[str]) -> AguiRun:
    """Command: the run behind the stop that is answered."""
    thread = AguiThread.objects.get(owner_id=asked.owner_id, name=asked.thread)
    return AguiRun.objects.create(
        thread=thread,
        name=asked.run,
        task_id=task_id,
        after=_stop(task_id, asked_about),
        answered=answered,
        digest=asked.digest,
    )


def _stop(task_id: UUID, asked_about: set[str]) -> int:
    """The last place in the log at which the task had stopped for one of these approvals."""
    questions = Questions()
    stop = last = 0
    for sequence, type_, payload in _events(task_id, ASKING):
        if questions.stops_before(type_, payload) and asked_about & questions.pending.keys():
            stop = last
        questions.apply(type_, payload)
        last = sequence
    return last if asked_about & questions.pending.keys() else stop


# ── where a run begins ────────────────────────────────────────────────────────────────────────


def opening(run: AguiRun) -> Opening:
    """Folded from the log up to there."""
    earlier = _events(run.task_id, ASKING + CALLS, run.after) if run.after else []
    return opened(((type_, payload) for _, type_, payload in earlier), run.answered)


def opened(earlier: Iterable[tuple[str, Payload]], answered: Iterable[str] = ()) -> Opening:
    """What stands behind these events, of `ASKING` and `CALLS` at least."""
    questions, blocks = Questions(), dict[str, str]()
    for type_, payload in earlier:
        if type_ == "tool_call_requested":
            blocks[payload["tool_call_id"]] = payload["block_id"]
        elif type_ == "tool_call_finished":
            blocks.pop(payload["tool_call_id"], None)
        else:
            questions.apply(type_, payload)
    return Opening(questions=questions, answered=frozenset(answered), blocks=blocks)


def _events(
    task_id: UUID, types: Sequence[str], until: int | None = None
) -> list[tuple[int, str, Payload]]:
    rows = TaskEvent.objects.filter(task_id=task_id, type__in=types).order_by("sequence")
    if until is not None:
        rows = rows.filter(sequence__lte=until)
    found = rows.values_list("sequence", "type", "payload")
    return [(sequence, type_, msgspec.json.decode(text)) for sequence, type_, text in found]
