"""Undoing one call: what it changed in files becomes what it was, if a person says so.

The call's result names the record of what it did (`agent.undo`), so the log says which one is true.
Nothing is undone while the task runs, nor when one of the files is another one since the call.

An undo stands in the audit like an effect in the log: `call.undo_begun` before the first file,
`call.undone` behind the last. One that was cut off in between can be repeated, and does the rest,
even if that is only to note its end.
Nobody but a person undoes: there is no tool for it, and no run has a credential.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from uuid import UUID

from asgiref.sync import sync_to_async

from agent import undo
from agent.errors import PathRefused, TargetChanged, ToolFailed
from agent.events import ToolCallFinished, ToolCallRequested
from agent.shelf import Shelf
from agent.tools.alone import alone_now
from agent.tools.changes import back
from agent.undo import Fate, Plan, Record
from agent.workspace import Workspace
from tasks import audit, events, keeping
from tasks.audit import Change
from tasks.errors import Conflict, NotFound
from tasks.events import wire_time
from tasks.models import AuditEntry, Task, TaskEvent
from tasks.writer import writer

BEGUN, DONE = "call.undo_begun", "call.undone"
MAX_NAMED = 20
"""Files named in one sentence."""
MAX_DIFFS = 256 * 1024
"""Characters of all diffs of a preview."""

logger = logging.getLogger(__name__)


State = Literal["possible", "changed", "undone", "impossible"]


class Entry(NamedTuple):
    """What the audit says of an undo."""

    by: str
    at: str
    done: bool


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that has come to its end."""

    task: Task
    sequence: int
    """Of its `tool_call_finished`."""
    tool_call_id: str
    name: str
    capability: str
    record: str | None
    """Digest of what is known of its changes; None: nothing was kept."""
    entry: Entry | None


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What undoing a call would do now, or why it would not."""

    state: State
    message: str
    plan: Plan | None = None
    diffs: tuple[str, ...] = ()
    """Of the plan's files; empty for one that would not be touched."""


class _Cut(Exception):
    """It stopped in the middle."""

    def __init__(self, refusal: Exception, done: int) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.done = done


async def find(task: Task, sequence: int) -> Call:
    """The call whose result is that event, or NotFound."""
    return await sync_to_async(_find)(task, sequence)


async def preview(call: Call) -> Preview:
    """Look, and change nothing."""
    return await asyncio.to_thread(_preview, call)


async def take_back(call: Call, by: str, digest: str) -> Preview:
    """Undo it, if it would still do what was shown: `digest` is the plan's.

    Conflict says `task_running`, `busy`, `already_undone`, `stale` (a file changed, or the plan is
    another one) or `cannot_undo`. It goes on to its end when whoever asked is gone.
    """
    await asyncio.to_thread(_take_back, call, by, digest)
    return await preview(await find(call.task, call.sequence))


# ── finding ───────────────────────────────────────────────────────────────────────────────────


def _find(task: Task, sequence: int) -> Call:
    row = events.one(task.pk, sequence)
    finished = None if row is None else events.typed(row)
    if not isinstance(finished, ToolCallFinished):
        raise NotFound("call")
    asked = _asked(task.pk, finished.tool_call_id, sequence)
    told = finished.details.get("undo") or {}
    return Call(
        task=task,
        sequence=sequence,
        tool_call_id=finished.tool_call_id,
        name=asked.name,
        capability=asked.capability,
        record=told.get("record"),
        entry=_entry(task.pk, sequence),
    )


def _asked(task_id: UUID, tool_call_id: str, before: int) -> ToolCallRequested:
    rows = TaskEvent.objects.filter(
        task_id=task_id, type="tool_call_requested", sequence__lt=before
    )
    for sequence in rows.order_by("-sequence").values_list("sequence", flat=True):
        row = events.one(task_id, sequence)
        event = None if row is None else events.typed(row)
        if isinstance(event, ToolCallRequested) and event.tool_call_id == tool_call_id:
            return event
    raise NotFound("call")


def _entry(task_id: UUID, sequence: int) -> Entry | None:
    """The newest that the audit says of it."""
    rows = AuditEntry.objects.filter(
        object_type="task", object_id=str(task_id), action__in=[BEGUN, DONE]
    )
    for row in rows.order_by("-sequence"):
        if audit.values_of(row, "event") == (sequence,):
            return Entry(by=row.by, at=wire_time(row.created_at), done=row.action == DONE)
    return None


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def _preview(call: Call) -> Preview:
    if call.entry is not None and call.entry.done:
        return Preview(state="undone", message=f"It was undone by {call.entry.by}.")
    shelf, record = _kept(call)
    if shelf is None or record is None:
        kept = shelf is not None and call.record is not None
        return Preview(state="impossible", message=_NOT_HERE if kept else _NOTHING_KEPT)
    workspace = Workspace(Path(call.task.session.workspace.root))
    plan = undo.plan(workspace, shelf, record)
    diffs = tuple(_diffs(plan, workspace))
    changed, ready = plan.of("changed"), plan.of("ready")
    if changed:
        message = _cut_before(call, plan) + f"Changed since the call: {_named(changed)}. "
        message += "Nothing is undone." if call.entry is None else "Nothing more is undone."
        return Preview(state="changed", message=message, plan=plan, diffs=diffs)
    if not ready and not _ends_unnoted(call, plan):
        message = _cut_before(call, plan) + _why_nothing(plan)
        return Preview(state="impossible", message=message, plan=plan, diffs=diffs)
    return Preview(state="possible", message=_sentence(call, plan), plan=plan, diffs=diffs)


def _kept(call: Call) -> tuple[Shelf | None, Record | None]:
    shelf = keeping.shelf_of(call.task.pk)
    if shelf is None or call.record is None:
        return None, None
    return shelf, undo.read(shelf, call.record)


def _diffs(plan: Plan, workspace: Workspace) -> list[str]:
    room, diffs = MAX_DIFFS, []
    for fate in plan.fates:
        diff = back(fate, workspace) if fate.standing == "ready" and room > 0 else ""
        room -= len(diff)
        diffs.append(diff)
    return diffs


def _why_nothing(plan: Plan) -> str:
    lost = plan.of("lost")
    if not lost:
        return "The files are as they were before the call."
    named = "; ".join(f"{fate.piece.path}: {fate.why}" for fate in lost[:MAX_NAMED])
    return f"It cannot be undone. {named}."


def _cut_before(call: Call, plan: Plan) -> str:
    """A sentence about an undo that did not come to its end."""
    if call.entry is None:
        return ""
    so_far = f"{len(plan.of('done')):,} of {_files(len(plan.fates))}"
    return f"An undo by {call.entry.by} was cut off; as before the call: {so_far}. "


def _ends_unnoted(call: Call, plan: Plan) -> bool:
    """Whether an undo was cut off behind its last file: doing it again notes its end."""
    done = (fate.standing == "done" or fate.piece.lost for fate in plan.fates)
    return call.entry is not None and all(done) and bool(plan.of("done"))


def _sentence(call: Call, plan: Plan) -> str:
    if not plan.of("ready"):
        return f"{_cut_before(call, plan)}Undoing it again notes its end."
    said = [f"{_files(len(plan.of('ready')))} would be as before the call."]
    if call.entry is not None:
        said.insert(0, f"An undo by {call.entry.by} was cut off; this does the rest.")
    if lost := plan.of("lost"):
        said.append(f"{_files(len(lost))} cannot be undone.")
    if not plan.record.complete:
        said.append("The call may have changed more: there were too many files to look at all.")
    return " ".join(said)


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _named(fates: list[Fate]) -> str:
    names = [fate.piece.path for fate in fates[:MAX_NAMED]]
    rest = len(fates) - len(names)
    return ", ".join(names) + (f" and {rest:,} more" if rest else "")


_NOTHING_KEPT = (
    "It cannot be undone: what was there before is not kept. Either nothing was kept then, or it "
    "went because of its age or for want of room."
)
_NOT_HERE = (
    "It cannot be undone: what was there before was kept, and is not here any more. It went because "
    "of its age or for want of room, or it lies with a worker whose PILOTHOUSE_VAR_DIR this server "
    "does not share."
)


# ── undoing ───────────────────────────────────────────────────────────────────────────────────


def _take_back(call: Call, by: str, digest: str) -> None:
    """In a thread of its own, so that it comes to its end whatever becomes of the request."""
    with ExitStack() as stack:
        try:
            stack.enter_context(alone_now(Path(call.task.session.workspace.root)))
        except ToolFailed as refusal:
            raise Conflict("busy", str(refusal)) from refusal
        # Whoever was here until now may have undone it.
        call = replace(call, entry=writer.run_sync(partial(_startable, call)))
        plan = _confirmed(call, digest)
        ready = plan.of("ready")
        writer.run_sync(partial(_note, call, by, BEGUN, len(ready), 0))
        try:
            done = _carried_out(call, plan)
        except _Cut as cut:
            raise _cut_off(cut, len(ready)) from cut
        writer.run_sync(partial(_note, call, by, DONE, done, len(plan.of("lost"))))


def _confirmed(call: Call, digest: str) -> Plan:
    now = _preview(call)
    if now.state == "changed":
        changed = [] if now.plan is None else now.plan.of("changed")
        files = [fate.piece.path for fate in changed[:MAX_NAMED]]
        raise Conflict("stale", now.message, {"files": files})
    if now.plan is None or now.state != "possible":
        raise _refusal(call, now)
    if now.plan.digest != digest:
        raise Conflict("stale", "It would not do what you were shown any more. Look again.")
    return now.plan


def _running() -> Conflict:
    return Conflict("task_running", "The task is running. Stop it, or wait until it has ended.")


def _refusal(call: Call, now: Preview) -> Conflict:
    if now.state == "undone" and call.entry is not None:
        return _already(call.entry)
    return Conflict("cannot_undo", now.message)


def _already(entry: Entry) -> Conflict:
    details = {"undone_by": entry.by, "undone_at": entry.at}
    return Conflict("already_undone", f"It was undone by {entry.by}.", details)


def _startable(call: Call) -> Entry | None:
    """Command: what the audit says of it, if it may still be undone."""
    running = Task.objects.filter(pk=call.task.pk, status=Task.Status.RUNNING)
    if running.exists():
        raise _running()
    return _entry(call.task.pk, call.sequence)


def _note(call: Call, by: str, action: str, files: int, lost: int) -> None:
    """Command. No paths: the audit outlives the words of an erased session."""
    said = {"event": call.sequence, "record": call.record, "files": files, "lost": lost}
    change = Change(
        action=action,
        by=by,
        object_type="task",
        object_id=str(call.task.pk),
        name=call.name,
        after=said,
    )
    audit.record(change)


def _carried_out(call: Call, plan: Plan) -> int:
    workspace = Workspace(Path(call.task.session.workspace.root))
    done = 0
    try:
        for _ in undo.carry_out(workspace, plan):
            done += 1
    except (TargetChanged, PathRefused, OSError) as refusal:
        logger.warning("The undo of call %s was cut off: %s", call.tool_call_id, refusal)
        raise _Cut(refusal, done) from refusal
    return done


def _cut_off(cut: _Cut, of: int) -> Conflict:
    so_far = f"{cut.done} of {_files(of)} are as before."
    if isinstance(cut.refusal, TargetChanged):
        return Conflict("stale", f"A file changed at the last moment; {so_far}")
    if isinstance(cut.refusal, OSError):
        return Conflict("cannot_undo", f"{cut.refusal.strerror}; {so_far}")
    return Conflict("cannot_undo", f"{cut.refusal} {so_far}")
