"""The loop: model, tools, model … until finished, an approval is needed, or a limit is reached.

`run()` yields events and performs an effect only after its consumer has come back for the next
event: whoever stores each event before going on gets a journal that is written before the act.
It ends

- after `AgentCompleted` (unless the consumer resumed it with something unanswered),
- after `TaskFailed` or `BudgetExceeded`,
- after one or more `ApprovalRequired`: a stop, not a wait. The next run continues from the log.

It never raises for a failing tool or provider. Cancelling it stops the model's stream and the
running tools; `Transcript.closing_events()` then makes the history whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from agent.asking import ModelDesk
from agent.asking import Retries as Retries
from agent.budget import Limits, exceeded, used_up, warnings
from agent.calls import CallDesk
from agent.events import (
    AgentCompleted,
    AgentEvent,
    AssistantDelta,
    BudgetWarning,
    ReasoningDelta,
    StoredEvent,
    TaskFailed,
    ToolCallDelta,
    ToolProgress,
)
from agent.messages import Text
from agent.policy import Policy
from agent.providers import Model
from agent.toolbox import Toolbox
from agent.transcript import Exchange, Transcript
from agent.workspace import Workspace

LIVE = (AssistantDelta, ReasoningDelta, ToolCallDelta, ToolProgress)


@dataclass(kw_only=True)
class Loop:
    """One run's collaborators; `run()` is the way in."""

    transcript: Transcript
    models: Sequence[Model]
    toolbox: Toolbox
    policy: Policy
    workspace: Workspace
    limits: Limits
    system: Callable[[], str]
    repeat_limit: int = 6
    retries: Retries = field(default_factory=Retries)

    def __post_init__(self) -> None:
        clock = asyncio.get_running_loop().time()
        self._began = clock - self.transcript.spent.seconds
        self._deadline = self._began + self.limits.max_seconds
        self._model_desk = ModelDesk(
            self.transcript,
            models=self.models,
            toolbox=self.toolbox,
            policy=self.policy,
            system=self.system,
            retries=self.retries,
            deadline=self._deadline,
        )
        self._call_desk = CallDesk(
            self.transcript,
            toolbox=self.toolbox,
            policy=self.policy,
            workspace=self.workspace,
            repeat_limit=self.repeat_limit,
            deadline=self._deadline,
        )

    async def run(self) -> AsyncGenerator[AgentEvent, None]:
        """The events of this run; each stored one is part of the transcript once the consumer
        asks for the next."""
        async with aclosing(self._within_time()) as events:
            async for event in events:
                yield event
                if not isinstance(event, LIVE):
                    self.transcript.apply(event)
                elif not isinstance(event, ToolProgress):
                    self.transcript.watch(event)

    async def _within_time(self) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(self._steps()) as events:
                async for event in events:
                    yield event
        except TimeoutError:
            self._look_at_the_clock()
            for event in self.transcript.closing_events("the time limit was reached"):
                yield event
            yield exceeded("seconds", self.transcript.spent.seconds, self.limits.max_seconds)

    async def _steps(self) -> AsyncGenerator[AgentEvent, None]:
        """First what an earlier run left open, then one model call after another."""
        for _ in range(self.limits.max_steps + 1):
            async with aclosing(self._act()) as events:
                async for event in events:
                    yield event
            if self.transcript.open_calls:
                return
            answer = self._answer()
            if answer is not None:
                yield AgentCompleted(final_answer=answer)
                if not self.transcript.unanswered:
                    return
            over = self._over_budget()
            if over is not None:
                yield over
                return
            step = self.transcript.spent.steps + 1
            async with aclosing(self._model_desk.ask(step)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, TaskFailed):
                        return
            for warning in self._warnings(step):
                yield warning
        limit = self.limits.max_steps
        yield exceeded("steps", limit, limit)

    async def _act(self) -> AsyncGenerator[AgentEvent, None]:
        if not self.transcript.open_calls:
            return
        async with aclosing(self._call_desk.act()) as events:
            async for event in events:
                yield event

    def _answer(self) -> str | None:
        """The final answer, when the newest reply is one and nobody has spoken since."""
        last: Exchange | None = self.transcript.last_exchange
        if last is None or last.calls or last.note or self.transcript.unanswered:
            return None
        return "".join(block.text for block in last.blocks if isinstance(block, Text))

    def _look_at_the_clock(self) -> None:
        self.transcript.spent.seconds = asyncio.get_running_loop().time() - self._began

    def _over_budget(self) -> StoredEvent | None:
        self._look_at_the_clock()
        return used_up(self.limits, self.transcript.spent)

    def _warnings(self, step: int) -> list[BudgetWarning]:
        self._look_at_the_clock()
        spent = self.transcript.spent
        return list(warnings(self.limits, spent, self.transcript.warned, step))


def run(
    transcript: Transcript,
    models: Sequence[Model],
    tools: Toolbox,
    policy: Policy,
    limits: Limits,
    *,
    workspace: Workspace,
    system: Callable[[], str],
    repeat_limit: int = 6,
    retries: Retries | None = None,
) -> AsyncGenerator[AgentEvent, None]:
    """See the module. Call it on the loop it shall run on; close it when you stop early."""
    return Loop(
        transcript=transcript,
        models=models,
        toolbox=tools,
        policy=policy,
        workspace=workspace,
        limits=limits,
        system=system,
        repeat_limit=repeat_limit,
        retries=retries or Retries(),
    ).run()
