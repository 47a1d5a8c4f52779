"""Random runs, watched over AG-UI by clients that come at any moment, and read again at the end.

`Rules` checks every event of every client against the official types and the protocol's order. In
the end everybody who read the same run has seen the same, and the runs of a task, one behind the
other, have each text and each result once.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from agent.events import (
    AgentCompleted,
    ApprovalRequired,
    ApprovalResolved,
    ApprovalUpdated,
    ArtifactRecorded,
    BudgetExceeded,
    BudgetWarning,
    ContextCompacted,
    ErrorInfo,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    TaskRecovered,
    TaskStarted,
    ToolCallFinished,
    ToolProgress,
    UserMessageAdded,
    payload_of,
)
from agent.messages import Usage
from streaming.agui.feed import translated
from streaming.agui.translation import Translation
from tasks.hub import hub
from tasks.threads import ASKING, CALLS, opened
from tests.streaming.world import Run, World, settle
from tests.support.agui import Rules, Stream
from tests.support.questions import question

KINDS = ("text", "reasoning", "tool_call")
CUT = ErrorInfo(code="cut", message="It broke off.", hint="Try again.")
ENDS: dict[str, list[StoredEvent]] = {
    "completed": [AgentCompleted(final_answer="done"), TaskCompleted()],
    "failed": [TaskFailed(error=CUT)],
    "cancelled": [TaskCancelled(by="alice")],
    "budget": [BudgetExceeded(which="steps", used=1, limit=1, message="Too many.")],
}
steps = st.one_of(
    st.tuples(st.just("delta"), st.sampled_from(KINDS), st.integers(1, 3)),
    st.tuples(st.just("delta"), st.just("tool_call"), st.integers(1, 3)),
    st.tuples(st.just("reply"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("aside"), st.integers(0, 5)),
    st.tuples(st.just("retry")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("resolve"), st.sampled_from(("approved", "rejected", "expired", "stale"))),
    st.tuples(st.just("answer"), st.integers(0, 2)),
    st.tuples(st.just("resume")),
    st.tuples(st.just("join"), st.integers(0, 3)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("turns"), st.integers(1, 6)),
)


class Watch:
    """A client of one run of AG-UI."""

    def __init__(self, task: Run, after: int, answered: Iterable[str]) -> None:
        known = ASKING + CALLS
        earlier = [
            (event.type, payload_of(event)) for event in log_of(task)[:after] if event.type in known
        ]
        translation = Translation("t", f"r{after}", opened(earlier, answered))
        self.stream = Stream()
        self._chunks = translated(task.source(), after, translation, [translation.begin({})])
        self.task = asyncio.create_task(self._read())

    @property
    def rules(self) -> Rules:
        return self.stream.rules

    async def _read(self) -> None:
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                self.stream.feed(chunk)

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def told(self) -> tuple[Any, ...]:
        """What counts: without what was withdrawn, and without how it came in pieces. Arguments
        that were watched are the model's own text."""
        void = {each["id"] for each in self.rules.custom("withdrawn")}
        calls = self.rules.calls
        texts = {
            key: "" if key in calls else text
            for key, text in self.rules.texts.items()
            if key not in void
        }
        results = {key: each for key, each in self.rules.results.items() if key not in void}
        return texts, results, self.rules.events[-1]


_logs: dict[str, list[StoredEvent]] = {}


def log_of(task: Run) -> list[StoredEvent]:
    return _logs.setdefault(task.task_id, [])


class Play:
    """Performs the steps; what does not fit the state of the task does nothing."""

    def __init__(self) -> None:
        self.task = World().task()
        self.numbers = itertools.count(1)
        self.step_number = 0
        self.calls: list[str] = []
        """Requested and without result."""
        self.pending: list[str] = []
        self.waiting = False
        self.runs: list[tuple[int, frozenset[str]]] = [(0, frozenset())]
        """Of AG-UI: where each begins and what was answered before it."""
        self.stop, self.asked_at_stop = 0, frozenset[str]()
        self.watches: list[tuple[int, Watch]] = []
        self.task.begin()
        self.commit(TaskCreated(goal="x", session_id="s", trigger="agui"), self.started("start"))

    def commit(self, *events: StoredEvent) -> None:
        log_of(self.task).extend(events)
        self.task.commit(*events)

    def started(self, reason: str) -> TaskStarted:
        return TaskStarted(run=1, reason=reason, model="m", limits={}, mode="ask")

    def asked(self, call: str, replaces: str = "") -> ApprovalRequired:
        approval = f"approval {next(self.numbers)}"
        self.pending.append(approval)
        return question(
            tool_call_id=call, diff="+x", approval_id=approval, replaces=replaces or UNSET
        )

    def resolved(self, approval: str, status: str, **more: Any) -> ApprovalResolved:
        self.pending.remove(approval)
        call = next(
            event.tool_call_id
            for event in log_of(self.task)
            if isinstance(event, ApprovalRequired) and event.approval_id == approval
        )
        return ApprovalResolved(
            approval_id=approval, kind="call", tool_call_id=call, status=status, **more
        )

    def results(self) -> list[StoredEvent]:
        done, self.calls = self.calls, []
        return [
            ToolCallFinished(step=1, tool_call_id=call, ok=True, content=f"of {call}")
            for call in reversed(done)
        ]

    def stopped(self) -> None:
        self.stop, self.asked_at_stop = len(log_of(self.task)), frozenset(self.pending)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────

    async def delta(self, kind: str, length: int) -> None:
        if self.waiting:
            return
        if not self.task.blocks:
            self.step_number += 1
            self.commit(ModelCallStarted(step=self.step_number, model="m", attempt=1))
        block = next((b for b, (k, _) in self.task.blocks.items() if k == kind), None)
        self.task.delta(block or f"{kind} {next(self.numbers)}", "aé\u2028"[:length], kind)

    async def reply(self, asks: int, parallel: bool) -> None:
        if self.waiting or not self.task.blocks:
            return
        stored = self.task.reply()[:-1]
        use = Usage(input_tokens=3, output_tokens=1)
        end = ModelCallFinished(
            step=self.step_number, finish_reason="stop", usage=use, cost=None, duration_ms=1
        )
        self.commit(*stored, end)
        made = [getattr(event, "tool_call_id", "") for event in stored]
        self.calls += [call for call in made if call]
        if not (asks and self.calls):
            self.commit(*self.results())
            return
        call = self.calls.pop()
        if parallel:
            self.commit(*self.results())
        questions = [self.asked(call) for _ in range(asks)]
        self.calls.append(call)
        self.commit(*questions)
        self.stopped()
        self.waiting = True
        self.task.end()

    async def aside(self, which: int) -> None:
        events: list[StoredEvent] = [
            UserMessageAdded(message_id=f"m {next(self.numbers)}", text="and this", by="alice"),
            ContextCompacted(step=1, from_sequence=1, to_sequence=1, summary="so far", model="n"),
            BudgetWarning(step=1, which="steps", used=1, limit=2),
            ArtifactRecorded(artifact_id="a", path="b", size=1, sha256="c"),
        ]
        if which == 4 and self.calls and not self.waiting:
            self.task.live(ToolProgress(tool_call_id=self.calls[0], text="half", done=1, total=2))
        elif self.waiting:
            now = self.pending or [""]
            snoozed = ApprovalUpdated(approval_id=now[0], expires_at=None, by="alice")
            self.commit(snoozed if which else events[0])
        elif which < len(events):
            self.commit(events[which])

    async def retry(self) -> None:
        if not self.waiting and self.task.blocks:
            self.task.drop_blocks()
            self.commit(
                ModelCallRetried(step=self.step_number, attempt=1, error=CUT, delay_seconds=0)
            )

    async def crash(self) -> None:
        if not self.waiting:
            self.task.end()
            self.task.drop_blocks()
            self.task.begin()
            self.commit(TaskRecovered(reason="x"), self.started("recover"))

    async def resolve(self, status: str) -> None:
        """Somebody on the page."""
        if not self.pending:
            return
        first = self.pending[0]
        if status != "stale":
            self.commit(self.resolved(first, status))
            return
        # Somebody answered over AG-UI, and the target had changed.
        self.runs.append((self.stop, frozenset({first})))
        closed = self.resolved(first, "stale")
        self.commit(closed, self.asked(closed.tool_call_id, replaces=first))
        self.stopped()

    async def answer(self, skip: int) -> None:
        """The client of AG-UI, with a run that goes on from the stop."""
        if self.pending:
            answered = self.pending[skip:] or self.pending[-1:]
            self.runs.append((self.stop, frozenset(answered)))
            self.commit(*[self.resolved(each, "approved") for each in list(answered)])
            self.join_run(len(self.runs) - 1)

    async def resume(self) -> None:
        if self.waiting and not self.pending:
            self.waiting = False
            # Who asks now is told that everything was answered.
            self.runs.append((self.stop, self.asked_at_stop))
            self.task.begin()
            self.commit(self.started("resume"))
            self.commit(*self.results())

    def join_run(self, number: int) -> None:
        if number < len(self.runs) and len(self.watches) < 8:
            self.watches.append((number, Watch(self.task, *self.runs[number])))

    async def join(self, back: int) -> None:
        self.join_run(max(0, len(self.runs) - 1 - back))

    async def leave(self, which: int) -> None:
        if which < len(self.watches):
            await self.watches.pop(which)[1].leave()

    async def turns(self, number: int) -> None:
        await settle(number)

    # ── the end ───────────────────────────────────────────────────────────────────────────────

    async def curtain(self, end: str) -> None:
        if self.waiting and end in {"completed", "budget"}:
            while self.pending:
                await self.resolve("approved")
            await self.resume()
        if self.waiting:
            self.runs.append((self.stop, self.asked_at_stop))
        closing = [self.resolved(each, "cancelled") for each in list(self.pending)]
        self.task.drop_blocks()
        self.commit(*closing, *self.results(), *ENDS[end])
        self.task.end()
        again = [Watch(self.task, *run) for run in self.runs]
        await settle(80)
        for number, watch in [*self.watches, *enumerate(again)]:
            assert watch.task.done(), watch.rules.types
            watch.task.result()
            assert watch.rules.ended, watch.rules.types
            assert watch.told() == again[number].told()
        self.check_chain(again)
        assert hub.is_empty()

    def check_chain(self, again: list[Watch]) -> None:
        """The last run of each stop, one behind the other, is the whole log."""
        chain = {after: watch for (after, _), watch in zip(self.runs, again, strict=True)}
        texts = [key for watch in chain.values() for key in watch.told()[0]]
        results = [key for watch in chain.values() for key in watch.told()[1]]
        log = log_of(self.task)
        blocks = [block for event in log if (block := getattr(event, "block_id", ""))]
        said = [event.message_id for event in log if isinstance(event, UserMessageAdded)]
        calls = {event.tool_call_id: event.block_id for event in log if event.type == CALLS[0]}  # type: ignore[union-attr]
        done = [calls[e.tool_call_id] for e in log if isinstance(e, ToolCallFinished)]
        assert sorted(texts) == sorted(blocks + said)
        assert sorted(results) == sorted(done)


async def perform(script: list[tuple[Any, ...]], end: str) -> None:
    hub.attach(asyncio.get_running_loop())
    try:
        play = Play()
        for name, *args in script:
            await getattr(play, name)(*args)
        await play.curtain(end)
    finally:
        hub.detach()
        _logs.clear()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=40), st.sampled_from(sorted(ENDS)))
def test_every_run_keeps_the_protocol_and_reads_the_same_again(
    script: list[tuple[Any, ...]], end: str
) -> None:
    asyncio.run(perform(script, end))
