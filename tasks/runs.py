"""One run of a task: drive the engine, store what it tells.

The engine tells, this module stores, and only then the engine goes on; so the journal of an effect
is committed before the effect. A reply is stored whole or not at all. What others write meanwhile
(a steering message) is noticed by the gap in the sequence and folded in.

A run ends in one of the ways of `Ending`. It is stopped from outside through `Run.stop()`; nobody
cancels its asyncio task directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from channels.db import database_sync_to_async

from agent.errors import AgentError
from agent.events import (
    MAX_DELTA_CHARS,
    AgentCompleted,
    AgentEvent,
    ApprovalRequired,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetExceeded,
    Delta,
    ErrorInfo,
    LiveEvent,
    ModelCallFinished,
    ModelCallStarted,
    ReasoningDelta,
    ReasoningMessage,
    StoredEvent,
    TaskCompleted,
    TaskFailed,
    ToolCallDelta,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    ToolProgress,
)
from agent.loop import run
from agent.outcomes import read_only
from agent.transcript import Transcript
from agent.workspace import Workspace
from tasks import approvals, dispatch, endings, relay, sessions, usage, wiring
from tasks.endings import Behind, MadeFile, RunEnd, Terminal
from tasks.events import FenceLost
from tasks.journal import Journal, Observer
from tasks.models import Task
from tasks.starting import Begun, canceller
from tasks.stopping import Stop, Stopping
from tasks.writer import WriterUnavailable, writer

logger = logging.getLogger(__name__)

_FOLDING = ThreadPoolExecutor(2, thread_name_prefix="fold")
_fold = database_sync_to_async(sessions.transcript_of, thread_sensitive=False, executor=_FOLDING)
"""Reading a long log takes a while: not in the one thread in which leases are looked after."""
READS_AT_ONCE = 3
"""Of a reply, before its run reads on in beats only: a short one, a call above all, is there by then,
and to wait for nothing would be most of its step."""
_BROKEN = ErrorInfo(
    code="internal_error",
    message="The run stopped because of an error in Pilothouse itself.",
    hint="The server's log has the details. A retry continues from the last complete step.",
)


class Ending(Enum):
    """How a run came to its end."""

    ENDED = "task over"  # the task is terminal
    WAITING = "waiting"  # a person decides
    CANCELLED = "cancelled"  # the task is terminal: a person stopped it
    RELEASED = "released"  # shutdown: whoever comes next continues
    LOST = "lost"  # nothing was written


# ── running ───────────────────────────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Run:
    """Drives one run; `drive()` once."""

    begun: Begun
    kit: wiring.Kit
    observe: Observer | None = None
    """For a command that shows its own run; everybody else follows through the hub."""
    _stopping: Stopping = field(init=False)
    _running_tools: set[str] = field(default_factory=set, init=False)
    _drained: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self._stopping = Stopping()
        self.task_id = self.begun.task.pk
        self._task_text = str(self.begun.task.pk)
        self._session_text = str(self.begun.task.session_id)
        self._journal = Journal(
            self.begun.task,
            self.begun.run,
            self.begun.stored.head,
            self.begun.choice.name,
            partial(self._stopping, Stop.LOST),
            self.observe,
        )
        self._asked = self.begun.asked
        """Stored, and not told by the engine yet."""
        self._limited = usage.limited()
        self._reply: list[StoredEvent] = []
        self._reads = 0
        """Of the reply that is under way."""
        self._questions: list[ApprovalRequired] = []
        self._answer: AgentCompleted | None = None
        self._terminal: Terminal | None = None
        self._winding_down = False

    def stop(self, why: Stop) -> None:
        """Ask for the end. The first reason counts."""
        self._stopping(why)

    async def wind_down(self, seconds: float) -> None:
        """For a shutdown: a running tool gets so long to finish, a model's stream nothing."""
        self._winding_down = True
        if self._running_tools:
            try:
                async with asyncio.timeout(seconds):
                    await self._drained.wait()
            except TimeoutError:
                logger.warning("A tool did not finish within %g seconds.", seconds)
        self.stop(Stop.SHUTDOWN)

    async def drive(self) -> Ending:
        """Run to the end of this run. Raises only WriterUnavailable: then the lease runs out and
        a later run continues from the log."""
        try:
            return await self._to_its_end()
        except FenceLost:
            return Ending.LOST
        finally:
            await self._journal.close()
            await self.kit.close()

    async def _to_its_end(self) -> Ending:
        try:
            ending = None if self._stopping.why else await self._stopping.during(self._work)
        except (FenceLost, WriterUnavailable):
            raise
        except Exception:
            # The boundary of a run: what broke it is said in its log, not only in the server's.
            logger.exception("The run of task %s broke.", self._task_text)
            await self._journal.settle()
            await writer.run(partial(endings.fail, self.task_id, _BROKEN, run=self.begun.run))
            return Ending.ENDED
        return await self._stopped() if ending is None else ending

    async def _stopped(self) -> Ending:
        match self._stopping.why:
            case Stop.CANCEL:
                return await self._cancelled()
            case Stop.SHUTDOWN:
                await self._journal.settle()
                await writer.run(partial(release, self.task_id, self.begun.run))
                return Ending.RELEASED
            case _:
                return Ending.LOST

    async def _cancelled(self) -> Ending:
        await self._journal.settle()
        unfinished = self._transcript.partial_events()
        await writer.run(partial(_cancel, self.task_id, self.begun.run, unfinished))
        return Ending.CANCELLED

    async def _work(self) -> Ending:
        self._journal.transcript = self.begun.transcript or await _fold(self.begun.task)
        system = self.kit.system(await self.kit.background())
        await run(
            self._transcript,
            self.begun.choice.models,
            self.kit.judge,
            self.kit.limits,
            self._hear,
            system=system,
            repeat_limit=self.kit.repeat_limit,
            retries=self.kit.retries,
            outer=partial(database_sync_to_async(usage.gauges), self.begun.task)
            if self._limited
            else None,
            budget_asks=self.kit.budget_asks,
        )
        return await self._finish()

    def _hear(self, event: AgentEvent) -> Awaitable[None]:
        """Show what is live; store what can be stored now, hold what belongs to a later command."""
        return _HEARD.get(type(event), Run._store)(self, event)

    async def _show(self, event: Delta) -> None:
        relay.publish(self._task_text, self._session_text, event)
        self._tell(event)
        if len(event.delta) == MAX_DELTA_CHARS:
            return  # it has the rest of the same read behind it
        self._reads += 1
        if self._reads <= READS_AT_ONCE:
            return
        rest = relay.turn(self._task_text)
        if rest is not None:
            await rest

    async def _show_progress(self, event: ToolProgress) -> None:
        await self._journal.settle()  # the beginning of its call is shown before it
        relay.publish(self._task_text, self._session_text, event)
        self._tell(event)

    async def _hold(self, event: StoredEvent) -> None:
        """Cut-off text is the last word of a run that fails: stored with its end, so that a crash in
        between cannot leave a history that ends with half an answer."""
        self._reads = 0
        self._reply.append(event)

    async def _hold_question(self, event: ApprovalRequired) -> None:
        self._questions.append(event)

    async def _hold_end(self, event: Terminal) -> None:
        self._terminal = event

    async def _begin_call(self, event: ModelCallStarted) -> None:
        """The first one may be stored already, with the beginning of the run."""
        stored, self._asked = self._asked, None
        if event != stored:
            await self._store(event)
        elif self.observe is not None:
            self.observe(self._journal.known, None)

    async def _begin_tool(self, event: ToolCallStarted) -> None:
        if self._winding_down:
            # A journal that says "started" without an effect would put a needless question to a
            # person after the restart: begin nothing new, the stop is on its way.
            await asyncio.Event().wait()
        self._running_tools.add(event.tool_call_id)
        self._drained.clear()
        await self._store(event)

    async def _end_tool(self, event: ToolCallFinished) -> None:
        self._running_tools.discard(event.tool_call_id)
        await self._store(event)

    async def _store(self, event: StoredEvent) -> None:
        batch, self._reply = [*self._reply, event], []
        if self._can_wait(event):
            self._journal.defer(batch)
        else:
            await self._journal.store(batch)
        if not self._running_tools:
            self._drained.set()

    def _can_wait(self, event: StoredEvent) -> bool:
        """Whether losing it in a crash loses nothing, and nobody looks for it in the database."""
        if isinstance(event, (ToolCallStarted, ToolCallFinished)):
            return read_only(self._transcript.calls[event.tool_call_id].capability)
        return isinstance(event, ModelCallFinished) and not self._limited

    def _tell(self, event: LiveEvent) -> None:
        if self.observe is not None:
            self.observe(self._journal.known, event)

    @property
    def _transcript(self) -> Transcript:
        return self._journal.transcript

    # ── ends ─────────────────────────────────────────────────────────────────────────────────

    async def _complete(self, answer: AgentCompleted) -> None:
        """The last events, unless somebody spoke meanwhile: then the engine takes another step."""
        while not self._transcript.unanswered:
            try:
                await self._end(TaskCompleted(), [answer], seen=self._journal.known)
            except Behind:
                await self._journal.read_on()
            else:
                self._answer = answer
                return

    async def _finish(self) -> Ending:
        if self._answer is not None:
            return Ending.ENDED
        if self._terminal is not None:
            await self._end(self._terminal, self._reply)
            return Ending.ENDED
        if not self._questions:
            raise RuntimeError("The engine stopped without an end and without a question.")
        await self._journal.settle()
        return await writer.run(partial(_ask, self.task_id, self.begun.run, self._questions))

    async def _end(
        self, terminal: Terminal, before: Sequence[StoredEvent], seen: int | None = None
    ) -> None:
        head = self._journal.head  # what is stored from here on is noticed, though folded in
        paths = artifact_paths(self._transcript)
        workspace = self.kit.workspace
        made = await asyncio.to_thread(made_files, paths, workspace) if paths else []
        await self._journal.end(
            RunEnd(
                task=self.begun.task,
                run=self.begun.run,
                head=head,
                terminal=terminal,
                before=before,
                spent=self._transcript.spent,
                made=made,
                seen=seen,
            )
        )


_HEARD: dict[type, Callable[[Run, Any], Awaitable[None]]] = {
    AssistantDelta: Run._show,
    ReasoningDelta: Run._show,
    ToolCallDelta: Run._show,
    ToolProgress: Run._show_progress,
    ReasoningMessage: Run._hold,
    AssistantMessageAdded: Run._hold,
    ToolCallRequested: Run._hold,
    ModelCallStarted: Run._begin_call,
    ToolCallStarted: Run._begin_tool,
    ToolCallFinished: Run._end_tool,
    ApprovalRequired: Run._hold_question,
    AgentCompleted: Run._complete,
    TaskFailed: Run._hold_end,
    BudgetExceeded: Run._hold_end,
}
"""What becomes of an event; any other is stored."""


def _ask(task_id: UUID, run: int, questions: Sequence[ApprovalRequired]) -> Ending:
    """Command: the run stops with its questions, unless a person wanted the end a moment before:
    nobody would look for that in a task that waits."""
    task = Task.objects.select_for_update(of=("self",)).get(pk=task_id)
    if task.cancel_requested_at is not None and task.run == run:
        endings.cancel(task_id, canceller(task), run=run)
        return Ending.CANCELLED
    approvals.ask(task_id, run, questions)
    return Ending.WAITING


def artifact_paths(transcript: Transcript) -> list[str]:
    """The files that the task's calls made, each once."""
    paths = {
        path: None
        for call in transcript.current_calls
        if call.result is not None
        for path in _made_by(call.result.details)
    }
    return list(paths)


def made_files(paths: Sequence[str], workspace: Workspace) -> list[MadeFile]:
    """Those of the files that are still there, as they are now."""
    made = []
    for path in paths:
        try:
            size, digest = workspace.stat(path).size, workspace.digest(path)
        except (AgentError, OSError):
            continue  # gone again, or no longer ours to read: nothing to hand over
        made.append(MadeFile(path=path, size=size, sha256=digest))
    return made


def _made_by(details: Mapping[str, Any]) -> list[str]:
    """One file, or those that a command changed."""
    return [str(path) for path in (*details.get("artifacts", ()), details.get("artifact")) if path]


def release(task_id: UUID, run: int) -> None:
    """Command: let go; the task stays `running` and whoever comes next recovers it at once. No
    worker is left in the row: this was a stop in good order, not a crash."""
    mine = Task.objects.filter(pk=task_id, run=run, status=Task.Status.RUNNING)
    if mine.update(lease_worker="", lease_expires_at=None):
        dispatch.offer(task_id)


def _cancel(task_id: UUID, run: int, unfinished: Sequence[StoredEvent]) -> None:
    task = Task.objects.select_related("cancel_requested_by").get(pk=task_id)
    endings.cancel(task_id, canceller(task), run=run, partial=unfinished)
