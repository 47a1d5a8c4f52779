"""The commands behind the service: a session's queue, and who may come into it when.

Each is one command of `tasks.writer`: it locks, checks everything, and only then changes rows, so
a refused request leaves no trace. Locks are taken in one order everywhere, tasks before their
session, so that no two commands wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Protocol
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from django.contrib.auth.models import User
from django.utils import timezone

from agent.events import StoredEvent, TaskCreated, UserMessageAdded, from_payload
from agent.text import cut
from tasks import dispatch, endings, events, keeping
from tasks.conf import conf
from tasks.errors import Conflict, Invalid, NotFound, TooMany
from tasks.models import Session, Task, TaskEvent, Workspace
from tasks.statements import Insert, New, Rows, fetch, update

_IN_SESSION = "WHERE session_id = %s AND status IN ('queued', 'running', 'waiting_approval')"
# As an expression: else SQLite walks through the session in order instead of to its open tasks.
_open_tasks = Rows(Task, f"{_IN_SESSION} ORDER BY first_position + 0", lock=True)
_OPEN_IDS = f"SELECT id FROM {Task._meta.db_table} {_IN_SESSION}"  # noqa: S608
_locked_session = Rows(Session, "WHERE id = %s AND NOT hidden", lock=True)
_last_task = Rows(Task, "WHERE session_id = %s ORDER BY first_position DESC LIMIT 1")
_ASKING = f"""
    SELECT username, (
        SELECT count(*) FROM {Task._meta.db_table}
        WHERE created_by_id = {User._meta.db_table}.id AND status = 'queued'
    ) FROM {User._meta.db_table} WHERE id = %s"""  # noqa: S608
"""Who asks, and how many of their tasks wait."""
_workspaces = {
    "session_id": Rows(
        Workspace,
        f"WHERE id = (SELECT workspace_id FROM {Session._meta.db_table} WHERE id = %s)",  # noqa: S608
    ),
    "workspace_id": Rows(Workspace, "WHERE id = %s"),
    "owner_id": Rows(Workspace, "WHERE owner_id = %s ORDER BY created_at, id LIMIT 1"),
}
_new_session, _new_task = New(Session), New(Task)
_insert_session, _insert_task = Insert(Session), Insert(Task)


class Beginning(Protocol):
    """A run that begins in the moment in which its task is stored."""

    @property
    def opening(self) -> Sequence[StoredEvent]:
        """The task's first ones."""


class Start(Protocol):
    """Begins a run together with its task."""

    @property
    def task_id(self) -> UUID:
        """What the task is to be called."""

    def __call__(self, task: Task, born: TaskCreated) -> Beginning | None:
        """Inside the command, before the row is inserted: makes it one that runs. None: it waits
        for its turn like any other."""


@dataclass(frozen=True, kw_only=True)
class TaskRequest:
    """A goal and where it belongs."""

    goal: str
    owner_id: int
    """Who asks."""
    trigger: str
    by: str = ""
    """Their name, where it is known: else it is looked up."""
    title: str = ""
    """Of the session that it opens; empty: the goal's first line."""
    session_id: UUID | None = None
    """None: a new session in `workspace_id`, or in the owner's first workspace."""
    workspace_id: UUID | None = None
    follow_up_of: UUID | None = None
    when_busy: str = "reject"
    mode: str = ""
    """Tightens the server's; loosening is refused."""
    attachments: tuple[str, ...] = ()
    """Files of the workspace that the goal is about, as paths in it."""
    limits: dict[str, float] | None = None
    model_profile_id: UUID | None = None
    """None: the session's. A session that begins with the task keeps it."""
    idempotency_key: str = ""
    body_digest: str = ""
    worker: str = ""
    """The process that will run it itself: nobody else may begin until its lease ends."""
    start: Start | None = None
    """For a task of a new session, where its run can begin at once."""


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


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What a creating command did, and who is to be told."""

    created: Created
    rings: tuple[tuple[UUID, str], ...] = ()
    """Task ids and the messages for their runners."""
    beginning: Beginning | None = None
    """The task runs already."""
    stored: events.Appended | None = None
    """The task's first events."""


class SessionMoved(Exception):
    """A task came into the session between two looks; nothing was stored."""


def lease(worker: str) -> dict[str, Any]:
    """Fields of a task that `worker` holds from now on."""
    until = timezone.now() + timedelta(seconds=conf().lease_seconds)
    return {"lease_worker": worker, "lease_expires_at": until}


def create(request: TaskRequest) -> Accepted:
    """Command: everything is checked before anything changes, an interrupted task included."""
    before = _replayed(request)
    if before is not None:
        return Accepted(created=before)
    busy = _lock_open_tasks(request.session_id)
    session = _session(request)
    if request.session_id is not None and len(busy) != len(fetch(_OPEN_IDS, session.pk)):
        raise SessionMoved
    if busy and request.when_busy == "steer":
        _refuse_with_steer(request)
        return Accepted(created=_steer_once(busy[0].pk, request))
    if busy and request.when_busy == "reject":
        raise Conflict(
            "session_busy",
            "A task of this session is not finished yet.",
            {"task_id": str(busy[0].pk), "status": busy[0].status},
        )
    asker = _asker(request.owner_id)
    previous = _previous(request, session)
    rings: list[tuple[UUID, str]] = []
    if request.when_busy == "interrupt":
        stopped = [task.pk for task in busy if cancel(task.pk, request.owner_id, looked=True)]
        rings = [(task_id, "run.cancel") for task_id in stopped]
    accepted = _store(request, session, previous, request.by or asker)
    if not request.worker and accepted.beginning is None:
        rings.append((accepted.created.task_id, "run.start"))
    return replace(accepted, rings=tuple(rings))


def _lock_open_tasks(session_id: UUID | None) -> list[Task]:
    """Before the session's row, as every append does it: two commands never wait crosswise."""
    return [] if session_id is None else _open_tasks(session_id)


def _refuse_with_steer(request: TaskRequest) -> None:
    """A steering message belongs to a task that exists: what shapes a new one would be lost."""
    given = {
        "mode": request.mode,
        "follow_up_of": request.follow_up_of,
        "limits": request.limits,
        "model": request.model_profile_id,
    }
    extra = {name: "only for a new task" for name, value in given.items() if value}
    if extra:
        message = f"This would steer a running task; {', '.join(extra)} cannot be used with that."
        raise Invalid("not_for_steering", message, extra)


def _replayed(request: TaskRequest) -> Created | None:
    if not request.idempotency_key:
        return None
    task = Task.objects.filter(
        created_by_id=request.owner_id, idempotency_key=request.idempotency_key
    ).first()
    if task is None:
        return _replayed_message(request) if request.when_busy == "steer" else None
    if task.idempotency_digest != request.body_digest:
        raise _other_request()
    return Created(
        task_id=task.id,
        session_id=task.session_id,
        status=str(Task.Status.QUEUED),
        sequence=1,
        position=task.first_position,
        replayed=True,
    )


def _replayed_message(request: TaskRequest) -> Created | None:
    """A steering message makes no task to carry the key: its own id is made of it."""
    if request.session_id is None:
        return None
    said = TaskEvent.objects.filter(
        session_id=request.session_id,
        type="user_message",
        payload__contains=_message_id(request),
    ).first()
    if said is None:
        return None
    event = from_payload(said.type, said.payload)
    if not isinstance(event, UserMessageAdded) or event.text != request.goal:
        raise _other_request()
    return Created(
        task_id=said.task_id,
        session_id=said.session_id,
        status=said.task.status,
        sequence=said.sequence,
        position=said.position,
        replayed=True,
    )


def _other_request() -> Conflict:
    return Conflict("idempotency_conflict", "This Idempotency-Key was used with another request.")


def _message_id(request: TaskRequest) -> str:
    if not request.idempotency_key:
        return str(uuid4())
    return str(uuid5(NAMESPACE_OID, f"{request.owner_id}:{request.idempotency_key}"))


def _steer_once(task_id: UUID, request: TaskRequest) -> Created:
    return steer(task_id, request.owner_id, request.goal, _message_id(request))


def _session(request: TaskRequest) -> Session:
    """The session, its row locked: whether it is busy cannot change under us. A new one is inserted
    with its first task."""
    if request.session_id is not None:
        session = _locked_session.one(request.session_id)
        if session is None:
            raise NotFound("session")
        return session
    return _new_session(
        owner_id=request.owner_id,
        workspace=workspace_of(request),
        title=request.title or title_of(request.goal),
        model_profile_id=request.model_profile_id,
    )


def workspace_of(request: TaskRequest) -> Workspace:
    """Where the task will work: its session's workspace, the one named, or the owner's first."""
    named = next(name for name in _workspaces if getattr(request, name) is not None)
    workspace = _workspaces[named].one(getattr(request, named))
    if workspace is None:
        raise Invalid("no_workspace", "There is no workspace to work in: register one first.")
    return workspace


def title_of(goal: str) -> str:
    return cut(goal.strip().splitlines()[0].strip(), 80)


def _asker(owner_id: int) -> str:
    """Their name. Refused with a full queue."""
    found = fetch(_ASKING, owner_id)
    if not found:
        raise User.DoesNotExist("There is no such user.")
    ((name, waiting),) = found
    if waiting >= conf().max_queued_per_user:
        raise TooMany("queue_full", f"{waiting} of your tasks wait already.", retry_after=5)
    return str(name)


def _store(request: TaskRequest, session: Session, previous: UUID | None, by: str) -> Accepted:
    fresh, start = request.session_id is None, request.start
    task = _new_task(
        id=uuid4() if start is None else start.task_id,
        session=session,
        owner_id=session.owner_id,
        workspace_id=session.workspace_id,
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
        update(Session, {"title": title_of(request.goal)}, "id = %s", session.pk)
    born = TaskCreated(
        goal=request.goal,
        session_id=str(session.id),
        trigger=str(request.trigger),
        follow_up_of=None if previous is None else str(previous),
        by=by,
    )
    beginning = start(task, born) if fresh and start is not None else None
    opening = [born] if beginning is None else beginning.opening
    if fresh:
        session.last_position = len(opening)
        _insert_session(session)
    stored = events.begin(task, opening, fresh=fresh)
    _insert_task(task)
    dispatch.offer_next(session.id)
    created = Created(
        task_id=task.id,
        session_id=session.id,
        status=str(Task.Status.QUEUED),  # as it was accepted; by now it may run
        sequence=stored.first_sequence,
        position=stored.first_position,
    )
    return Accepted(created=created, beginning=beginning, stored=stored)


def _previous(request: TaskRequest, session: Session) -> UUID | None:
    if request.follow_up_of is not None:
        if not session.tasks.filter(pk=request.follow_up_of).exists():
            raise NotFound("task")
        return request.follow_up_of
    last = _last_task.one(session.pk) if request.session_id is not None else None
    return None if last is None else last.id


def steer(task_id: UUID, user_id: int, text: str, message_id: str = "") -> Created:
    """Command: say something to a task; its next step answers it."""
    task = Task.objects.select_for_update().get(pk=task_id)
    if task.status in Task.TERMINAL:
        raise Conflict("task_ended", f"The task is {task.status}: send it as a new request.")
    by = User.objects.get(pk=user_id).get_username()
    said = UserMessageAdded(message_id=message_id or str(uuid4()), text=text, by=by)
    stored = events.append(task_id, [said])
    return Created(
        task_id=task.id,
        session_id=task.session_id,
        status=task.status,
        sequence=stored.last_sequence,
        position=stored.last_position,
    )


def cancel(task_id: UUID, user_id: int, *, looked: bool = False) -> bool:
    """Command. True: its run was asked to stop. A task without a living run is cancelled here; raises
    `keeping.Unfinished` where that would hide what a call did, unless somebody looked."""
    task = Task.objects.select_for_update().get(pk=task_id)
    if task.status in Task.TERMINAL:
        return False
    if task.status == Task.Status.RUNNING and _alive(task):
        if task.cancel_requested_at is None:
            Task.objects.filter(pk=task_id).update(
                cancel_requested_at=timezone.now(), cancel_requested_by_id=user_id
            )
        dispatch.abort(task_id)
        return True
    if task.status == Task.Status.RUNNING and not looked:
        keeping.need_settled(task_id)
    endings.cancel(task_id, User.objects.get(pk=user_id).get_username())
    return False


def _alive(task: Task) -> bool:
    return task.lease_expires_at is not None and task.lease_expires_at > timezone.now()


def fork(session_id: UUID, user_id: int, task_id: UUID, sequence: int) -> UUID:
    """Command: a session that continues from an event of another."""
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
