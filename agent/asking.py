"""One step's model call: tried again while that makes sense, then by a model that stands in.

A stand-in takes over when the one before it cannot be reached, stays overloaded or keeps breaking
off. It does not hide what a person must see and can mend: a refused key, an empty account, a model
that does not exist, a request that is refused. It stays for the rest of the run; the next run asks
the first model again.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import msgspec

from agent import compaction
from agent.context import fit
from agent.errors import OutOfTime, ProviderError, ProviderIncomplete
from agent.events import (
    MAX_RAW_ARGUMENTS,
    AssistantMessageAdded,
    ContextCompacted,
    ErrorInfo,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningMessage,
    StoredEvent,
    TaskFailed,
    Tell,
    ToolCallRequested,
)
from agent.judging import Judge
from agent.messages import Block, Reasoning, Reply, Text, ToolCall
from agent.policy import Decision
from agent.providers import Model, ModelRequest
from agent.providers.failures import failure
from agent.room import Room
from agent.text import cut, size_of_text
from agent.toolbox import Toolbox
from agent.transcript import ABOUT_A_LIMIT, Transcript
from agent.waits import Limit


@dataclass(frozen=True, kw_only=True)
class Retries:
    """How often and after how long a failed model call is tried again."""

    attempts: int = 5
    """Of one model."""
    first_delay: float = 0.5
    """Seconds; doubled each time, with jitter."""
    longest_delay: float = 30.0
    """A server that asks for a longer wait gets it, unless another model stands by."""

    def delay(self, error: ProviderError, attempt: int) -> float | None:
        """Seconds until the next attempt; None = give up."""
        if error.adapted:
            return 0.0
        if attempt >= self.attempts or not error.retryable:
            return None
        if error.code == "empty_answer" and attempt > 1:
            return None
        backoff = min(self.first_delay * 2 ** (attempt - 1), self.longest_delay)
        jittered: float = backoff * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
        return max(error.retry_after or 0.0, jittered)


class ModelDesk:
    """Asks the models of a run on behalf of its transcript."""

    def __init__(
        self,
        transcript: Transcript,
        *,
        models: Sequence[Model],
        judge: Judge,
        system: str,
        retries: Retries,
        limit: Limit,
        tell: Tell,
    ) -> None:
        self._transcript = transcript
        self._model, *self._others = models
        self._toolbox: Toolbox = judge.toolbox
        self._judge = judge
        self._system = system
        self._retries = retries
        self._limit = limit
        """Ends waits when the task's seconds are used up."""
        self._tell = tell
        self._tries = 0
        """Of the current model in the current step."""
        self._room = Room(judge.toolbox.definitions_size + size_of_text(system))

    async def ask(self, step: int) -> bool:
        """Ends with the events of a reply, told without a wait of ours between them, or, when there
        is none (False), with `TaskFailed`. Raises OutOfTime at the deadline."""
        attempt = self._tries = 0
        self._room.begin_step()
        while True:
            attempt, self._tries = attempt + 1, self._tries + 1
            summary = await self._summarize(step)
            if summary is not None:
                await self._tell(summary)
            model = self._model.provider.model
            await self._tell(ModelCallStarted(step=step, model=model, attempt=attempt))
            began = time.monotonic()
            outcome = await self._attempt(step)
            if isinstance(outcome, Reply):
                self._room.learn(outcome.usage)
                took = round((time.monotonic() - began) * 1000)
                useless = _useless(outcome)
                for event in await self._reply_events(step, outcome, took, says=not useless):
                    await self._tell(event)
                if useless is None:
                    return True
                outcome = useless
            info = ErrorInfo(code=outcome.code, message=str(outcome), hint=outcome.hint)
            delay = self._next(outcome)
            if delay is None:
                for event in self._transcript.closing_events("the model did not answer"):
                    await self._tell(event)
                await self._tell(TaskFailed(error=info))
                return False
            await self._tell(
                ModelCallRetried(step=step, attempt=attempt, error=info, delay_seconds=delay)
            )
            with self._limit:
                await asyncio.sleep(delay)

    # ── one attempt ──────────────────────────────────────────────────────────────────────────

    async def _attempt(self, step: int) -> Reply | ProviderError:
        """Tells deltas; gives the reply, or how it failed."""
        request = self._request(step)
        now = asyncio.get_running_loop().time
        async with aclosing(self._model.provider.stream(request)) as stream:
            while True:
                try:
                    with self._limit:
                        item = await anext(stream, None)
                except ProviderError as error:
                    return error
                if now() >= self._limit.until:  # it came without a wait, but too late
                    raise OutOfTime
                if isinstance(item, Reply):
                    return item
                if item is None:
                    return ProviderIncomplete(
                        "The model's reply had no end.", code="provider_incomplete"
                    )
                await self._tell(item)

    def _request(self, step: int) -> ModelRequest:
        history = fit(self._transcript.messages(), self._room.budget(self._model))
        self._room.sending(history)
        return ModelRequest(
            system=self._system,
            messages=history,
            tools=self._toolbox.definitions,
            step=step,
            new_block_id=_new_id,
        )

    # ── room ─────────────────────────────────────────────────────────────────────────────────

    async def _summarize(self, step: int) -> ContextCompacted | None:
        """Before a call: the older history as a summary, when nothing else makes it fit."""
        budget = self._room.budget(self._model)
        if not self._room.is_short(self._transcript.messages(), budget):
            return None
        covered = compaction.covers(self._transcript.entries, budget)
        if covered is None:
            return None
        began = time.monotonic()
        entries = self._transcript.entries[:covered]
        reply = await self._ask_for_summary(compaction.request(entries, budget, step, _new_id))
        summary = "" if reply is None else compaction.summary_of(reply, budget)
        if reply is None or not summary:
            self._room.give_up()
            return None
        prices = self._model.prices
        return msgspec.structs.replace(
            compaction.compacted(self._transcript, covered, summary, step, budget),
            model=self._model.provider.model,
            usage=reply.usage,
            cost=None if prices is None else prices.cost(reply.usage),
            duration_ms=round((time.monotonic() - began) * 1000),
        )

    async def _ask_for_summary(self, request: ModelRequest) -> Reply | None:
        """One try, besides those in which the server teaches us what it wants. A failure costs
        history, not the task: the oldest part of it is left out then."""
        for _ in range(self._retries.attempts):
            try:
                with self._limit:
                    async with aclosing(self._model.provider.stream(request)) as stream:
                        async for item in stream:
                            if isinstance(item, Reply):
                                return item
            except ProviderError as error:
                if not error.adapted:
                    return None
        return None

    # ── after a failure ──────────────────────────────────────────────────────────────────────

    def _next(self, error: ProviderError) -> float | None:
        """Seconds until the next attempt, perhaps of another model; None when there is none."""
        if error.code == "context_overflow" and self._room.overflowed():
            return 0.0
        if error.adapted:
            self._tries -= 1  # each lesson is new, so they come to an end by themselves
        delay = self._retries.delay(error, self._tries)
        longest = self._limit.until - asyncio.get_running_loop().time()
        if self._others:
            longest = min(longest, self._retries.longest_delay)
        if delay is not None and delay <= longest:
            return delay
        if error.retryable and self._others:
            self._model, *self._others = self._others
            self._tries = 0
            return 0.0
        return None

    # ── a reply as events ────────────────────────────────────────────────────────────────────

    async def _reply_events(
        self, step: int, reply: Reply, took: int, *, says: bool
    ) -> list[StoredEvent]:
        """A reply that says nothing is paid for all the same."""
        prices = self._model.prices
        given: set[str] = set()
        blocks = reply.blocks if says else ()
        if any(isinstance(block, ToolCall) for block in blocks):
            await self._judge.refresh()
        events = [await self._block_event(step, block, given) for block in blocks]
        finished = ModelCallFinished(
            step=step,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            cost=None if prices is None else prices.cost(reply.usage),
            duration_ms=took,
        )
        return [*events, finished]

    async def _block_event(self, step: int, block: Block, given: set[str]) -> StoredEvent:
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
                own_id = self._own_id(block.tool_call_id, given)
                decision = await self._judge.decide(block.name, block.arguments)
                return self._requested(step, block, own_id, decision)

    def _requested(
        self, step: int, call: ToolCall, own_id: str, decision: Decision
    ) -> ToolCallRequested:
        """Every call becomes an event, valid or not."""
        tool = self._toolbox.get(call.name)
        broken = call.arguments is None
        extra: dict[str, Any] = (
            {"raw_arguments": cut(call.raw_arguments, MAX_RAW_ARGUMENTS)} if broken else {}
        )
        if broken:
            extra["problem"] = call.problem
        if decision.rule_id:
            extra["rule_id"] = decision.rule_id
        if len(decision.chain) > 1:
            extra["chain"] = list(decision.chain)
        return ToolCallRequested(
            step=step,
            tool_call_id=own_id,
            block_id=call.block_id,
            index=call.index,
            name=call.name,
            arguments=call.arguments,
            capability=tool.capability if tool else "",
            risk=tool.risk if tool else "low",
            decision=decision.decision,
            rule=decision.rule,
            **extra,
            **_data(call),
        )

    def _own_id(self, theirs: str, given: set[str]) -> str:
        """The provider's id where that is one; they number calls per reply, or not at all, and ours
        are unique in the session (of which the beginning may not be known). `given` are the ids of
        this reply so far."""
        usable = _USABLE_ID.fullmatch(theirs) is not None
        taken = not usable or theirs in given or theirs in self._transcript.calls
        if not (taken or theirs.startswith(ABOUT_A_LIMIT) or self._transcript.begins_late):
            given.add(theirs)
            return theirs
        return f"call_{_new_id()}"


_USABLE_ID = re.compile(r"[\x21-\x7e]{1,128}")
"""Longer, empty or odd ids are replaced: they go into columns, frames and other providers."""


def _useless(reply: Reply) -> ProviderError | None:
    """What is wrong with a reply that neither says nor does anything."""
    if any(isinstance(block, ToolCall) for block in reply.blocks):
        return None
    if any(isinstance(block, Text) and block.text.strip() for block in reply.blocks):
        return None
    if reply.finish_reason == "content_filter":
        return failure("it withheld the answer", "content_filter")
    if reply.finish_reason == "length":
        return ProviderIncomplete(
            "The model had used up its output before it came to an answer.",
            code="empty_answer",
            hint="Raise max_tokens in the options of its profile, or choose another model.",
        )
    return ProviderIncomplete(
        "The model gave an empty answer.",
        code="empty_answer",
        hint="Ask again, or choose another model.",
    )


def _data(block: Block) -> dict[str, Any]:
    return {} if block.provider_data is None else {"provider_data": block.provider_data}


def _new_id() -> str:
    return os.urandom(8).hex()
