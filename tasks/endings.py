"""How a task ends: everything that belongs to an end, in one command.

Whoever ends it (its run, a person, the recovery), the log is left whole: open questions are void,
every call has a result, files that were made are recorded, then the terminal event.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import msgspec

from agent.events import (
    AgentCompleted,
    ArtifactRecorded,
    AssistantMessageAdded,
    BudgetExceeded,
    ErrorInfo,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    ToolCallFinished,
)
from agent.transcript import INTERRUPTED, Spent, Transcript
from tasks import approvals, dispatch, events, keeping, lifecycle, sessions
from tasks.events import Head
from tasks.models import Artifact, Task
from tasks.statements import Rows

Terminal = TaskCompleted | TaskFailed | TaskCancelled | BudgetExceeded
STATUS = {
    TaskCompleted: Task.Status.COMPLETED,
    TaskFailed: Task.Status.FAILED,
    TaskCancelled: Task.Status.CANCELLED,
    BudgetExceeded: Task.Status.BUDGET_EXCEEDED,
}
_task = Rows(Task, "WHERE id = %s", lock=True)


@dataclass(frozen=True, kw_only=True)
class MadeFile:
    """A file that a run made, as it is at the end."""

    path: str
    size: int
    sha256: str


class Behind(Exception):
    """Something was stored that the run has not seen; nothing was written."""


def end(
    task_id: UUID,
    terminal: Terminal,
    *,
    run: int | None = None,
    seen: int | None = None,
    before: Sequence[StoredEvent] = (),
    made: Sequence[MadeFile] = (),
    spent: Spent | None = None,
) -> None:
    """Command: the last events and the status. With `run`, only while that run owns the task.

    With `seen`, only if nothing was stored after that sequence, else `Behind`.
    """
    if made:
        _locked(task_id)
    artifacts = [_record(task_id, file) for file in made]
    stored = events.append(task_id, [*artifacts, *before, terminal], fence=run)
    if seen is not None and stored.first_sequence != seen + 1:
        raise Behind
    used = {} if spent is None else usage_fields(spent)
    outcome = _outcome(before, terminal)
    lifecycle.move(task_id, to=STATUS[type(terminal)], run=run, **outcome, **used)
    dispatch.offer_next(UUID(stored.session_id))


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """How a run ends its task."""

    task: Task
    run: int
    head: Head
    """Of the task's log, as the run knows it."""
    terminal: Terminal
    before: Sequence[StoredEvent]
    """Its last events."""
    spent: Spent
    made: Sequence[MadeFile] = ()
    seen: int | None = None
    """As for `end()`."""

    @property
    def is_an_answer(self) -> bool:
        """And nothing else, as nearly all are."""
        return isinstance(self.terminal, TaskCompleted) and not self.made


def end_run(ending: RunEnd) -> None:
    """Command: with fewer statements where the log ends as the run knows it."""
    if ending.made or not _end_at_once(ending):
        end(
            ending.task.pk,
            ending.terminal,
            run=ending.run,
            seen=ending.seen,
            before=ending.before,
            made=ending.made,
            spent=ending.spent,
        )


def end_together(ended: Sequence[RunEnd]) -> None:
    """Command: the ends of several runs that are answers. Raises NotTogether."""
    lifecycle.complete_together([_wanted(each) for each in ended])
    for each in ended:
        dispatch.offer_next(each.task.session_id)


def _end_at_once(ending: RunEnd) -> bool:
    """False: the log does not end there any more, or another run owns the task; nothing was written."""
    task, head, terminal = ending.task, ending.head, ending.terminal
    ready = events.ready((task.pk, task.session_id), head, [*ending.before, terminal])
    changes = {**_outcome(ending.before, terminal), **usage_fields(ending.spent), **ready.fields}
    to, running = STATUS[type(terminal)], (Task.Status.RUNNING,)
    if not lifecycle.move(
        task.pk, to=to, frm=running, run=ending.run, known=head.sequence, **changes
    ):
        return False
    events.store(ready)
    dispatch.offer_next(task.session_id)
    return True


def _wanted(ending: RunEnd) -> events.Wanted:
    return events.Wanted(
        task_id=ending.task.pk,
        session_id=ending.task.session_id,
        run=ending.run,
        head=ending.head,
        events=[*ending.before, ending.terminal],
        fields={**_outcome(ending.before, ending.terminal), **usage_fields(ending.spent)},
    )


def cancel(
    task_id: UUID, username: str, *, run: int | None = None, partial: Sequence[StoredEvent] = ()
) -> bool:
    """Command: stop the task now. False: it had ended already, or another run owns it.

    `partial` is unfinished text that the run was showing. Whether it is still unfinished is
    decided here, under the row's lock: its reply may have been stored a moment ago.
    """
    task = _locked(task_id)
    if task.status in Task.TERMINAL or (run is not None and task.run != run):
        return False
    transcript = sessions.of_task_alone(task_id)
    whole = [*_unfinished(partial, transcript), *approvals.cancel_open(task_id, username)]
    whole += _traced(task_id, transcript.closing_events("the task was stopped"))
    end(task_id, TaskCancelled(by=username), before=whole, spent=transcript.spent)
    return True


def fail(task_id: UUID, error: ErrorInfo, *, run: int | None = None) -> bool:
    """Command: the task cannot go on. False: it had ended already, or another run owns it."""
    task = _locked(task_id)
    if task.status in Task.TERMINAL or (run is not None and task.run != run):
        return False
    transcript = sessions.of_task_alone(task_id)
    closing = _traced(task_id, transcript.closing_events("the task failed"))
    whole = [*approvals.cancel_open(task_id, ""), *closing]
    end(task_id, TaskFailed(error=error), before=whole, spent=transcript.spent)
    return True


def usage_fields(spent: Spent) -> dict[str, Any]:
    """The task row's counters, as folded from its log."""
    return {
        "steps": spent.steps,
        "usage": {
            "input_tokens": spent.input_tokens,
            "output_tokens": spent.output_tokens,
            "reasoning_tokens": spent.reasoning_tokens,
            "cached_tokens": spent.cached_tokens,
            "estimated": spent.estimated,
        },
        "cost": spent.cost if spent.has_cost else None,
    }


def _locked(task_id: UUID) -> Task:
    return _task.get(task_id)


def _unfinished(partial: Sequence[StoredEvent], transcript: Transcript) -> list[StoredEvent]:
    return [
        event
        for event in partial
        if isinstance(event, AssistantMessageAdded) and not transcript.knows_block(event.block_id)
    ]


def _traced(task_id: UUID, closing: Sequence[StoredEvent]) -> list[StoredEvent]:
    """The results of calls that were cut off say what those did, as far as it is known."""
    return [
        msgspec.structs.replace(event, details=keeping.traces_of(task_id, event.tool_call_id))
        if isinstance(event, ToolCallFinished) and event.content == INTERRUPTED
        else event
        for event in closing
    ]


def _record(task_id: UUID, file: MadeFile) -> ArtifactRecorded:
    media_type = mimetypes.guess_type(file.path)[0] or "application/octet-stream"
    row, _ = Artifact.objects.update_or_create(
        task_id=task_id,
        path=file.path,
        defaults={"size": file.size, "sha256": file.sha256, "media_type": media_type},
        create_defaults={
            "id": uuid4(),
            "size": file.size,
            "sha256": file.sha256,
            "media_type": media_type,
        },
    )
    return ArtifactRecorded(
        artifact_id=str(row.id), path=file.path, size=file.size, sha256=file.sha256
    )


def _outcome(before: Sequence[StoredEvent], terminal: Terminal) -> dict[str, Any]:
    answers = [event.final_answer for event in before if isinstance(event, AgentCompleted)]
    fields: dict[str, Any] = {"final_answer": answers[-1]} if answers else {}
    if isinstance(terminal, TaskFailed):
        fields["error"] = msgspec.to_builtins(terminal.error)
    elif isinstance(terminal, BudgetExceeded):
        fields["error"] = {
            "code": "budget_exceeded",
            "message": terminal.message,
            "hint": "Retry it with the work so far, or raise the limit in the settings.",
        }
    return fields
