"""What becomes of the calls of a reply: judged one by one, then run, refused or put to a person.

A call is judged again in every run, from its own journal in the transcript, so a resume after an
approval and a recovery after a crash take the same path:

1. answered no (or "it is done")  -> a result for the model, nothing runs
2. started, outcome unknown       -> a read is repeated, an effect becomes a question
3. answered yes                   -> runs, if its target is still what was shown; else asked anew
4. it is itself a question        -> a person is asked
5. not asked yet                  -> policy decides
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import msgspec

from agent import outcomes
from agent.errors import OutOfTime, PathRefused, TargetChanged, ToolFailed
from agent.events import (
    ApprovalRequired,
    Tell,
    ToolCallFinished,
    ToolCallStarted,
    ToolProgress,
)
from agent.judging import Judge
from agent.outcomes import NOBODY_ANSWERS, Settle, denied, nobody_there, read_only
from agent.policy import REPLY_SCOPES, Decision
from agent.toolbox import Preview, Toolbox, arguments_digest
from agent.transcript import REPEATED, Call, Transcript
from agent.waits import Limit

BEFORE_AN_ASK = (
    "\n\n[An earlier call of this reply waits for a person and has not run: "
    "this result shows the state before it.]"
)
REPEATS_NOTED = 3
"""From the third identical call with an identical result on, the result says so."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """It may run now."""

    expected_target: str | None = None
    judged: tuple[str, ...] = ()
    """Where it reaches, as policy judged it."""


Verdict = Run | Settle | ApprovalRequired


@dataclass(frozen=True, kw_only=True)
class Go:
    """A call that runs now."""

    call: Call
    how: Run
    note: str = ""
    """Added to its result."""


class Progress:
    """What running calls say of themselves, told in that order beside them."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: deque[ToolProgress] = deque()
        self._telling: asyncio.Task[None] | None = None
        self._closed = False

    def put(self, event: ToolProgress) -> None:
        if self._closed:
            return  # of a thread that was given up
        self._waiting.append(event)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_all())

    async def _tell_all(self) -> None:
        while self._waiting:
            await self._tell(self._waiting.popleft())
        self._telling = None  # a failure stays, for whoever asks

    async def told(self) -> None:
        """Once all that has come was told. Raises what kept it from being told."""
        if self._telling is not None:
            await asyncio.shield(self._telling)

    async def close(self) -> None:
        """Tell nothing more. What is being told is told to its end: cut off, whoever stores the
        beginning of its call would not hear that it is stored, and take it for somebody else's."""
        self._closed = True
        self._waiting.clear()
        telling = self._telling
        if telling is not None:
            await asyncio.wait({telling})
            if not telling.cancelled():
                telling.exception()  # asyncio reports one that nobody looked at


class CallDesk:
    """Deals with the open calls of a transcript's newest reply."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        judge: Judge,
        repeat_limit: int,
        limit: Limit,
        tell: Tell,
    ) -> None:
        self._transcript = transcript
        self._judge = judge
        self._toolbox: Toolbox = judge.toolbox
        self._repeat_limit = repeat_limit
        self._limit = limit
        """Ends waits when the task's seconds are used up."""
        self._tell = tell

    async def act(self, calls: Sequence[Call]) -> None:
        """Run those that may run, in order; reads side by side. Questions come last, all together:
        when there are any, the run stops after them. Raises OutOfTime at the deadline."""
        questions: list[ApprovalRequired] = []
        reads: list[Go] = []
        for call in calls:
            if reads and not questions and not read_only(call.capability):
                # An effect is judged when nothing before it runs any more: by the rules of then.
                await self._run(reads)
                reads = []
            await self._judge.refresh()  # what ran before this call may have taken its time
            runs_now = not questions or read_only(call.capability)
            verdict = await self.judge(call, runs_now=runs_now)
            if isinstance(verdict, ApprovalRequired):
                questions.append(verdict)
            elif isinstance(verdict, Settle):
                await self._tell(_finished(call, verdict.ok, verdict.content, verdict.details))
            elif read_only(call.capability):
                reads.append(Go(call=call, how=verdict, note=BEFORE_AN_ASK if questions else ""))
            elif not questions:
                await self._run([Go(call=call, how=verdict)])
        await self._run(reads)
        for question in questions:
            await self._tell(question)

    # ── judging ──────────────────────────────────────────────────────────────────────────────

    async def judge(self, call: Call, *, runs_now: bool = True) -> Verdict:
        """What is to become of a call; `runs_now`: it is run at once if it may."""
        arguments = call.asked.arguments
        if arguments is None:
            return Settle(ok=False, content=call.asked.problem)
        settled = outcomes.settled(call)
        if settled is not None:
            return await outcomes.with_traces(self._judge, call, settled)
        if call.started and not read_only(call.capability):
            # Before anything else is looked at: the tool may be gone, the schema changed, the
            # target as the call left it. None of that says that nothing happened.
            return await self._unknown_effect(call)
        problem = self._toolbox.problem(call.asked.name, arguments)
        if problem is not None:
            return Settle(ok=False, content=problem)
        if call.answer is not None:
            return await self._approved(call, arguments)
        tool = self._toolbox.get(call.asked.name)
        if tool is not None and tool.asks:
            return await self._for_a_person(call, arguments)
        return await self._undecided(call, arguments, runs_now)

    async def _approved(self, call: Call, arguments: dict[str, Any]) -> Verdict:
        """A person said yes: policy, digest and target are checked once more before it runs."""
        assert call.answer is not None
        decision = await self._judge.decide(call.asked.name, arguments)
        if decision.decision == "deny":
            return Settle(ok=False, content=denied(decision.reason))
        if call.answer.arguments_digest != arguments_digest(call.asked.name, arguments):
            return Settle(ok=False, content="Not run: these are not the arguments approved.")
        approved_target = call.answer.target_digest
        if not approved_target:
            return Run(judged=decision.paths)
        try:
            now = await self._preview(call)
        except (PathRefused, ToolFailed) as refusal:
            return Settle(ok=False, content=str(refusal))
        if now.target_digest == approved_target:
            return Run(expected_target=approved_target, judged=decision.paths)
        asked = await self._ask(call, call.answer.kind, _CHANGED, now, decision)
        return msgspec.structs.replace(asked, replaces=call.answer.approval_id)

    async def _undecided(self, call: Call, arguments: dict[str, Any], runs_now: bool) -> Verdict:
        decision = await self._judge.decide(call.asked.name, arguments)
        if decision.decision == "deny":
            return Settle(ok=False, content=denied(decision.reason))
        most = self._repeat_limit
        if most and self._transcript.repeats(call, most) == most:
            reason = f"The same call gave the same result {self._repeat_limit} times in a row."
            return await self._question(call, "limit", reason, decision)
        if decision.uses and decision.decision == "allow" and runs_now:
            decision = await self._judge.settle(call.asked.name, arguments)
        if decision.decision == "allow":
            return Run(judged=decision.paths)
        if self._transcript.rejections(call) >= 2:
            return Settle(ok=False, content=_TWICE_REJECTED)
        return await self._question(call, "call", decision.reason, decision)

    async def _for_a_person(self, call: Call, arguments: dict[str, Any]) -> Verdict:
        """A question of the model's own. It changes nothing, so a run that only reads may ask."""
        decision = await self._judge.decide(call.asked.name, arguments)
        if decision.decision == "deny":
            return Settle(ok=False, content=denied(decision.reason))
        if self._judge.mode == "deny":
            return Settle(ok=False, content=NOBODY_ANSWERS)
        if self._transcript.rejections(call) >= 2:
            return Settle(ok=False, content=_TWICE_REJECTED)
        nothing = Preview(diff="", target_digest="")
        return await self._ask(call, "question", _QUESTION, nothing, decision)

    async def _unknown_effect(self, call: Call) -> Verdict:
        """Only a person can say whether it happened, whatever a repetition would do now."""
        await outcomes.look_behind(self._judge)
        if self._judge.mode != "ask":
            nobody = Settle(ok=False, content=nobody_there(_UNKNOWN_EFFECT))
            return await outcomes.with_traces(self._judge, call, nobody)
        decision = await self._judge.decide(call.asked.name, call.asked.arguments)
        try:
            preview = await self._preview(call)
        except (PathRefused, ToolFailed) as refusal:
            preview = Preview(diff=f"It cannot be repeated as it is: {refusal}", target_digest="")
        preview = await outcomes.shown_with_traces(self._judge, call, preview)
        return await self._ask(call, "unknown_effect", _UNKNOWN_EFFECT, preview, decision)

    async def _question(self, call: Call, kind: str, reason: str, decision: Decision) -> Verdict:
        """Evidence first: a call whose effect cannot even be described is not put to a person."""
        if self._judge.mode != "ask":
            return Settle(ok=False, content=nobody_there(reason))
        try:
            preview = await self._preview(call)
        except (PathRefused, ToolFailed) as refusal:
            return Settle(ok=False, content=str(refusal))
        return await self._ask(call, kind, reason, preview, decision)

    async def _preview(self, call: Call) -> Preview:
        name = call.asked.name
        return await self._toolbox.preview(
            name, call.asked.arguments or {}, self._judge.context(name)
        )

    async def _ask(
        self, call: Call, kind: str, reason: str, preview: Preview, decision: Decision
    ) -> ApprovalRequired:
        name, arguments = call.asked.name, call.asked.arguments or {}
        standing = await self._judge.standing(name, arguments, decision) if kind == "call" else None
        return ApprovalRequired(
            step=call.step,
            kind=kind,
            tool_call_id=call.asked.tool_call_id,
            name=name,
            arguments=arguments,
            capability=call.capability,
            risk=call.risk,
            reason=reason,
            rule=decision.rule,
            diff=preview.diff,
            options=["done", "retry"] if kind == "unknown_effect" else [],
            scopes=["once"] if standing is None else list(REPLY_SCOPES),
            standing="" if standing is None else standing.says,
            arguments_digest=arguments_digest(name, arguments),
            target_digest=preview.target_digest,
        )

    # ── running ──────────────────────────────────────────────────────────────────────────────

    async def _run(self, batch: Sequence[Go]) -> None:
        """Journal, then run side by side; progress and results in the order in which they come.

        With no time left nothing is begun. An effect that was begun may come to its end, within
        its tool's own time: cut off by the task's limit, its outcome would be unknown.
        """
        if not batch:
            return
        if asyncio.get_running_loop().time() >= self._limit.until:
            raise OutOfTime
        cut_off = all(read_only(go.call.capability) for go in batch)
        for go in batch:
            started = ToolCallStarted(step=go.call.step, tool_call_id=go.call.asked.tool_call_id)
            await self._tell(started)
        progress = Progress(self._tell)
        limit = self._limit if cut_off else nullcontext()
        try:
            if len(batch) == 1 and not self._toolbox.is_native(batch[0].call.asked.name):
                with limit:
                    finished = await self._run_one(batch[0], progress)
                await progress.told()
                await self._tell(finished)
            else:
                await self._side_by_side(batch, limit, progress)
        finally:
            await progress.close()

    async def _side_by_side(
        self, batch: Sequence[Go], limit: AbstractContextManager[object], progress: Progress
    ) -> None:
        """Each in a task of its own; so is a coroutine alone, which might swallow that the run was
        cancelled."""
        running = [asyncio.create_task(self._run_one(go, progress)) for go in batch]
        left = set(running)
        try:
            while left:
                with limit:
                    _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                await progress.told()
                for task in [task for task in running if task not in left]:
                    running.remove(task)
                    await self._tell(task.result())
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)

    async def _run_one(self, go: Go, progress: Progress) -> ToolCallFinished:
        loop = asyncio.get_running_loop()
        call = go.call

        def say(text: str, done: float | None, total: float | None) -> None:
            event = ToolProgress(
                tool_call_id=call.asked.tool_call_id,
                text=text,
                done=msgspec.UNSET if done is None else done,
                total=msgspec.UNSET if total is None else total,
            )
            loop.call_soon_threadsafe(progress.put, event)

        context = self._judge.context(
            call.asked.name,
            judged=go.how.judged,
            progress=say,
            expected_target=go.how.expected_target,
            call_id=call.asked.tool_call_id,
            answer="" if call.answer is None else call.answer.answer or "",
        )
        began = time.monotonic()
        try:
            arguments = call.asked.arguments or {}
            result = await self._toolbox.run(call.asked.name, arguments, context)
        except TargetChanged:
            return _finished(call, False, _CHANGED_AT_LAST)
        details = result.details or await self._traces_of(call)
        content = result.content + go.note
        if self._is_repeat(call, content):
            content += REPEATED
        took = round((time.monotonic() - began) * 1000)
        return _finished(call, result.ok, content, details, took)

    async def _traces_of(self, call: Call) -> dict[str, Any]:
        """Of one that says nothing itself: it took too long, or failed in the middle."""
        if read_only(call.capability):
            return {}
        traces = await outcomes.traces(self._judge, call)
        return {} if traces is None else traces.details

    def _is_repeat(self, call: Call, content: str) -> bool:
        enough = REPEATS_NOTED - 1
        return self._transcript.repeats(call, enough, content) == enough


def _finished(
    call: Call, ok: bool, content: str, details: dict[str, Any] | None = None, took: int = 0
) -> ToolCallFinished:
    return ToolCallFinished(
        step=call.step,
        tool_call_id=call.asked.tool_call_id,
        ok=ok,
        content=content,
        details=details or {},
        duration_ms=took,
    )


_UNKNOWN_EFFECT = (
    "The process stopped while this call was running. Whether it took effect is not known."
)
_CHANGED = "The target changed after you were asked. This is the change against it as it is now."
_CHANGED_AT_LAST = (
    "Not done: the file changed between the approval and the write, so nothing was written. "
    "Read it again before you ask for another change."
)
_TWICE_REJECTED = (
    "Refused: a person has rejected exactly this call twice. Do something else or say what is "
    "missing."
)
_QUESTION = "The agent cannot go on well without your answer."
