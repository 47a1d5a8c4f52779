"""The loop: model, tools, model … until finished, an approval is needed, or a limit is reached.

`run()` tells its events, one after the other, and performs an effect only after the call that told
it has returned: whoever stores each event before that gets a journal that is written before the act.
It ends

- after `AgentCompleted` (unless something is unanswered by then),
- after `TaskFailed` or `BudgetExceeded`,
- after one or more `ApprovalRequired`: a stop, not a wait. The next run continues from the log.

It never raises for a failing tool or provider, and passes on what `tell` raises. Cancelling it
stops the model's stream and the running tools; `Transcript.closing_events()` then makes the history
whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from agent.asking import ModelDesk
from agent.asking import Retries as Retries
from agent.budget import (
    ASKABLE,
    Gauge,
    Limits,
    exceeded,
    gauges,
    question,
    refused,
    warnings,
    with_grants,
)
from agent.calls import CallDesk
from agent.errors import OutOfTime
from agent.events import (
    AgentCompleted,
    AgentEvent,
    ModelCallStarted,
    StoredEvent,
    Tell,
)
from agent.judging import Judge
from agent.messages import Text
from agent.providers import Model
from agent.transcript import Exchange, Spent, Transcript
from agent.waits import Limit

Outer = Callable[[], Awaitable[Sequence[Gauge]]]
"""Reads how much is used of the limits that are not the task's own."""


@dataclass(kw_only=True)
class Loop:
    """One run's collaborators; `run()` is the way in."""

    transcript: Transcript
    models: Sequence[Model]
    judge: Judge
    limits: Limits
    tell: Tell
    system: str
    """The prompt; the same in all steps, so that providers may cache what begins with it."""
    repeat_limit: int = 6
    retries: Retries = field(default_factory=Retries)
    outer: Outer | None = None
    budget_asks: bool = False

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time()
        granted = self.transcript.granted
        self._began = clock - self.transcript.spent.seconds
        self._most_steps = int(self.limits.max_steps + granted.get(("task", "steps"), 0))
        more_seconds = granted.get(("task", "seconds"), 0)
        deadline = self._began + self.limits.max_seconds + more_seconds
        limit = Limit(deadline, OutOfTime)  # of this task, and of all its waits
        # No method of ours: the desks would hold the loop that holds them.
        self._tell: Tell = partial(_told, self.tell, self.transcript)
        self._model_desk = ModelDesk(
            self.transcript,
            models=self.models,
            judge=self.judge,
            system=self.system,
            retries=self.retries,
            limit=limit,
            tell=self._tell,
        )
        self._call_desk = CallDesk(
            self.transcript,
            judge=self.judge,
            repeat_limit=self.repeat_limit,
            limit=limit,
            tell=self._tell,
        )

    async def run(self) -> None:
        try:
            await self._steps()
        except OutOfTime:
            for last in self._out_of_time():
                await self._tell(last)

    def _out_of_time(self) -> Iterator[StoredEvent]:
        """Text that was under way is the last word of an end; before a question it is dropped,
        because the model will be asked anew."""
        gauge = next(each for each in self._own_gauges() if each.which == "seconds")
        why = "the time limit was reached"
        if self._may_ask(gauge):
            yield from self.transcript.results(why)
        else:
            yield from self.transcript.closing_events(why)
        yield self._stop_at(gauge)

    async def _steps(self) -> None:
        """First what an earlier run left open, then one model call after another."""
        for _ in range(self._most_steps + 1):
            if calls := self.transcript.open_calls:
                await self._call_desk.act(calls)
                if self.transcript.open_calls:
                    return
            answer = self._answer()
            if answer is not None:
                await self._tell(AgentCompleted(final_answer=answer))
                if not self.transcript.unanswered:
                    return
            found = [gauge for gauge in await self._gauges() if gauge.nearly_used_up]
            reached = self._limit_reached(found)
            if reached is not None:
                await self._tell(reached)
                return
            step = self.transcript.spent.steps + 1
            for warning in warnings(found, self.transcript.warned, step):
                await self._tell(warning)
            if not await self._model_desk.ask(step):
                return
        raise AssertionError("the limit of steps bounds this loop")

    def _answer(self) -> str | None:
        """The final answer, when the newest reply is one and nobody has spoken since."""
        last: Exchange | None = self.transcript.last_exchange
        if last is None or last.calls or last.note or self.transcript.unanswered:
            return None
        return "".join(block.text for block in last.blocks if isinstance(block, Text))

    # ── limits ───────────────────────────────────────────────────────────────────────────────

    def _own_gauges(self) -> list[Gauge]:
        spent = self.transcript.spent
        spent.seconds = asyncio.get_running_loop().time() - self._began
        return with_grants(gauges(self.limits, spent), self.transcript.granted)

    async def _gauges(self) -> list[Gauge]:
        outer = [] if self.outer is None else await self.outer()
        return [*self._own_gauges(), *with_grants(outer, self.transcript.granted)]

    def _limit_reached(self, found: list[Gauge]) -> StoredEvent | None:
        """The end or the question where a limit leaves no room for another model call."""
        if self.transcript.limit_refused is not None:
            return refused(self.transcript.limit_refused)
        over = next((gauge for gauge in found if gauge.used_up), None)
        return None if over is None else self._stop_at(over)

    def _may_ask(self, gauge: Gauge) -> bool:
        return self.budget_asks and gauge.scope in ASKABLE and self.judge.mode == "ask"

    def _stop_at(self, gauge: Gauge) -> StoredEvent:
        if self._may_ask(gauge):
            return question(gauge, self.transcript.spent.steps)
        return exceeded(gauge)


async def _told(tell: Tell, transcript: Transcript, event: AgentEvent) -> None:
    """An event is part of the transcript once it was heard."""
    await tell(event)
    transcript.apply(event)


def first_call(model: str, limits: Limits) -> ModelCallStarted | None:
    """What a run tells first that begins a task without a history, under its own limits alone: it may
    be stored together with what begins the run. None: a warning or an end may come before it."""
    if any(gauge.nearly_used_up for gauge in gauges(limits, Spent())):
        return None
    return ModelCallStarted(step=1, model=model, attempt=1)


async def run(
    transcript: Transcript,
    models: Sequence[Model],
    judge: Judge,
    limits: Limits,
    tell: Tell,
    *,
    system: str,
    repeat_limit: int = 6,
    retries: Retries | None = None,
    outer: Outer | None = None,
    budget_asks: bool = False,
) -> None:
    """See the module."""
    await Loop(
        transcript=transcript,
        models=models,
        judge=judge,
        limits=limits,
        tell=tell,
        system=system,
        repeat_limit=repeat_limit,
        retries=retries or Retries(),
        outer=outer,
        budget_asks=budget_asks,
    ).run()
