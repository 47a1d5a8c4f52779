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
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from agent.budget import Limits, exceeded, used_up, warnings
from agent.calls import CallDesk
from agent.context import HISTORY_CHARS, fit
from agent.errors import ProviderError, ProviderIncomplete
from agent.events import (
    MAX_RAW_ARGUMENTS,
    AgentCompleted,
    AgentEvent,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetWarning,
    Delta,
    ErrorInfo,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningDelta,
    ReasoningMessage,
    StoredEvent,
    TaskFailed,
    ToolCallDelta,
    ToolCallRequested,
    ToolProgress,
)
from agent.messages import Block, Reasoning, Reply, Text, ToolCall
from agent.policy import Policy
from agent.providers import ModelRequest, Provider, ToolDefinition
from agent.text import cut
from agent.toolbox import Toolbox
from agent.transcript import Exchange, Transcript
from agent.workspace import Workspace

LIVE = (AssistantDelta, ReasoningDelta, ToolCallDelta, ToolProgress)


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often and after how long a failed model call is tried again."""

    attempts: int = 5
    first_delay: float = 0.5
    """Seconds; doubled each time, with jitter."""
    longest_delay: float = 30.0

    def delay(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds until the next attempt; None = give up."""
        if attempt >= self.attempts or not (error.retryable or error.adapted):
            return None
        if error.code == "empty_answer" and attempt > 1:
            return None
        if error.adapted:
            return 0.0
        backoff = min(self.first_delay * 2 ** (attempt - 1), self.longest_delay)
        jittered: float = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        return max(error.retry_after or 0.0, jittered)


@dataclass(kw_only=True)
class Loop:
    """One run's collaborators; `run()` is the way in."""

    transcript: Transcript
    provider: Provider
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
        self._history_chars = HISTORY_CHARS
        self._definitions = [
            ToolDefinition(name=tool.name, description=tool.description, parameters=tool.parameters)
            for tool in self.toolbox.tools
        ]
        self._desk = CallDesk(
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
            async with aclosing(self._ask_model(self.transcript.spent.steps + 1)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, TaskFailed):
                        return
        limit = self.limits.max_steps
        yield exceeded("steps", limit, limit)

    async def _act(self) -> AsyncGenerator[AgentEvent, None]:
        if not self.transcript.open_calls:
            return
        async with aclosing(self._desk.act()) as events:
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

    # ── the model ────────────────────────────────────────────────────────────────────────────

    async def _ask_model(self, step: int) -> AsyncGenerator[AgentEvent, None]:
        """One step's model call with its retries. Ends with the events of a reply, all of them
        between two of the consumer's questions, or with `TaskFailed`."""
        for attempt in range(1, self.retries.attempts + 1):
            yield ModelCallStarted(step=step, model=self.provider.model, attempt=attempt)
            began = time.monotonic()
            reply: Reply | None = None
            error: ProviderError | None = None
            try:
                async with aclosing(self._stream(step)) as stream:
                    async for item in stream:
                        if isinstance(item, Reply):
                            reply = item
                        else:
                            yield item
                reply = _checked(reply)
            except ProviderError as caught:
                error = caught
            if reply is not None and error is None:
                took = round((time.monotonic() - began) * 1000)
                for event in self._reply_events(step, reply, took):
                    yield event
                for warning in self._warnings(step):
                    yield warning
                return
            assert error is not None
            delay = self._delay(error, attempt)
            info = ErrorInfo(code=error.code, message=str(error), hint=error.hint)
            if delay is None:
                for event in self.transcript.closing_events("the model did not answer"):
                    yield event
                yield TaskFailed(error=info)
                return
            yield ModelCallRetried(step=step, attempt=attempt, error=info, delay_seconds=delay)
            async with asyncio.timeout_at(self._deadline):
                await asyncio.sleep(delay)

    async def _stream(self, step: int) -> AsyncGenerator[Delta | Reply, None]:
        request = ModelRequest(
            system=self.system(),
            messages=fit(self.transcript.messages(), self._history_chars),
            tools=self._definitions,
            step=step,
            new_block_id=_new_id,
        )
        async with aclosing(self.provider.stream(request)) as stream:
            while True:
                try:
                    async with asyncio.timeout_at(self._deadline):
                        item = await anext(stream)
                except StopAsyncIteration:
                    return
                yield item
                # Let followers and other runs have their turn: text appears as it is made.
                await asyncio.sleep(0)

    def _delay(self, error: ProviderError, attempt: int) -> float | None:
        """An overflowing context gets one try with half the history."""
        if error.code == "context_overflow" and self._history_chars == HISTORY_CHARS:
            self._history_chars //= 4
            return 0.0
        delay = self.retries.delay(error, attempt)
        left = self._deadline - asyncio.get_running_loop().time()
        return None if delay is None or delay > left else delay

    def _reply_events(self, step: int, reply: Reply, took: int) -> list[StoredEvent]:
        events: list[StoredEvent] = [self._block_event(step, block) for block in reply.blocks]
        events.append(
            ModelCallFinished(
                step=step,
                finish_reason=reply.finish_reason,
                usage=reply.usage,
                cost=None,
                duration_ms=took,
            )
        )
        return events

    def _warnings(self, step: int) -> list[BudgetWarning]:
        self._look_at_the_clock()
        spent = self.transcript.spent
        return list(warnings(self.limits, spent, self.transcript.warned, step))

    def _block_event(self, step: int, block: Block) -> StoredEvent:
        match block:
            case Text():
                return AssistantMessageAdded(
                    step=step, block_id=block.block_id, text=block.text, **_data(block)
                )
            case Reasoning():
                return ReasoningMessage(
                    step=step, block_id=block.block_id, text=block.text, **_data(block)
                )
            case ToolCall():
                return self._requested(step, block)

    def _requested(self, step: int, call: ToolCall) -> ToolCallRequested:
        """Every call becomes an event, valid or not; its id is the provider's where that is one."""
        tool = self.toolbox.get(call.name)
        capability = tool.capability if tool else ""
        decision = self.policy.decide(capability, call.name)
        broken = call.arguments is None
        extra: dict[str, Any] = (
            {"raw_arguments": cut(call.raw_arguments, MAX_RAW_ARGUMENTS)} if broken else {}
        )
        if broken:
            extra["problem"] = call.problem
        return ToolCallRequested(
            step=step,
            tool_call_id=self._own_id(call.tool_call_id),
            block_id=call.block_id,
            index=call.index,
            name=call.name,
            arguments=call.arguments,
            capability=capability,
            risk=tool.risk if tool else "low",
            decision=decision.decision,
            rule=decision.rule,
            **extra,
            **_data(call),
        )

    def _own_id(self, theirs: str) -> str:
        """Providers number calls per reply, or not at all; ours are unique in the session."""
        if theirs and theirs not in self.transcript.calls and theirs not in self._minted:
            self._minted.add(theirs)
            return theirs
        return f"call_{_new_id()}"

    _minted: set[str] = field(default_factory=set, init=False)
    """Ids given within the reply that is being turned into events."""


def run(
    transcript: Transcript,
    provider: Provider,
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
        provider=provider,
        toolbox=tools,
        policy=policy,
        workspace=workspace,
        limits=limits,
        system=system,
        repeat_limit=repeat_limit,
        retries=retries or Retries(),
    ).run()


def _checked(reply: Reply | None) -> Reply:
    if reply is None:
        raise ProviderIncomplete("The model's reply had no end.", code="provider_incomplete")
    if any(isinstance(block, ToolCall) for block in reply.blocks):
        return reply
    if any(isinstance(block, Text) and block.text.strip() for block in reply.blocks):
        return reply
    raise ProviderIncomplete(
        "The model gave an empty answer.",
        code="empty_answer",
        hint="Ask again, or choose another model.",
    )


def _data(block: Block) -> dict[str, Any]:
    return {} if block.provider_data is None else {"provider_data": block.provider_data}


def _new_id() -> str:
    return uuid4().hex[:16]
