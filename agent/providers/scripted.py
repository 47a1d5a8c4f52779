"""A provider that plays a script: for tests, evals and demonstrations, without a key.

It streams like a real one (pieces, delays, failures, silence) and is as strict as the strictest:
an invalid history, a missing turn and an unused turn are errors of the test that caused them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.errors import ProviderError
from agent.events import (
    MAX_DELTA_CHARS,
    AssistantDelta,
    Delta,
    ReasoningDelta,
    ToolCallDelta,
)
from agent.messages import Block, Reasoning, Reply, Text, ToolCall, Usage
from agent.providers import ModelRequest
from agent.providers.history import check_history
from agent.providers.usage import estimated_usage
from agent.text import clean_json


class ScriptError(AssertionError):
    """The script and what was asked of it do not fit."""


@dataclass(frozen=True, kw_only=True)
class ScriptedCall:
    """A tool call of a turn."""

    name: str
    arguments: dict[str, Any] | None = field(default_factory=dict)
    """None for a broken call."""
    id: str = ""
    """The provider's id; mostly there is none and the loop makes one."""
    raw: str = ""
    """What a broken call has instead of arguments."""
    problem: str = "The arguments of this call are not valid JSON. It was not executed."
    """Why a broken call is broken."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One reply, or one failure."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish_reason: str = ""
    """Mostly left to the calls: tool_calls or stop."""
    usage: Usage | None = None
    """Estimated when not given."""
    piece: int = 24
    """Characters per delta."""
    delay: float = 0.0
    """Seconds before each delta."""
    error: ProviderError | None = None
    """Raised after the deltas, instead of the reply."""
    hang: bool = False
    """After the deltas nothing comes, for ever."""


TurnFor = Callable[[ModelRequest], Turn]


class ScriptedProvider:
    """Plays its turns in order; a turn may be a function of the request."""

    model = "scripted"

    def __init__(self, turns: Sequence[Turn | TurnFor], *, strict: bool = True) -> None:
        self._turns = list(turns)
        self._strict = strict
        self.requests: list[ModelRequest] = []
        """What was asked, for tests to look at."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        """Plays the next turn; see `agent.providers.Provider`."""
        if self._strict:
            check_history(request.messages)
        if len(self.requests) == len(self._turns):
            raise ScriptError(f"the script has {len(self._turns)} turns and was asked for another")
        turn = self._turns[len(self.requests)]
        self.requests.append(request)
        async for item in play(turn if isinstance(turn, Turn) else turn(request), request):
            yield item

    async def aclose(self) -> None:
        """Holds nothing."""

    def assert_done(self) -> None:
        """Every turn was played."""
        unused = len(self._turns) - len(self.requests)
        if unused:
            raise ScriptError(f"{unused} of {len(self._turns)} turns were not asked for")


async def play(turn: Turn, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
    """One turn as deltas and, unless it fails, a reply."""
    blocks = _blocks(turn, request)
    for block, text in blocks:
        size = max(1, min(turn.piece, MAX_DELTA_CHARS))
        for offset in range(0, len(text), size):
            await asyncio.sleep(turn.delay)
            yield _delta(request.step, block, offset, text[offset : offset + size])
    if turn.hang:
        await asyncio.Event().wait()
    if turn.error is not None:
        raise turn.error
    yield Reply(
        blocks=tuple(block for block, _ in blocks),
        finish_reason=turn.finish_reason or ("tool_calls" if turn.calls else "stop"),
        usage=turn.usage or _usage(blocks, request, turn),
    )


def _blocks(turn: Turn, request: ModelRequest) -> list[tuple[Block, str]]:
    """Each block with the text of its deltas."""
    blocks: list[tuple[Block, str]] = []
    if turn.reasoning:
        thought = Reasoning(block_id=request.new_block_id(), text=turn.reasoning)
        blocks.append((thought, turn.reasoning))
    if turn.text:
        blocks.append((Text(block_id=request.new_block_id(), text=turn.text), turn.text))
    for index, call in enumerate(turn.calls):
        broken = call.arguments is None
        block = ToolCall(
            block_id=request.new_block_id(),
            tool_call_id=call.id,
            index=index,
            name=call.name,
            arguments=clean_json(call.arguments),  # as every provider does: the log keeps it so
            raw_arguments=call.raw if broken else "",
            problem=call.problem if broken else "",
        )
        raw = call.raw if broken else json.dumps(call.arguments, ensure_ascii=False)
        blocks.append((block, raw))
    return blocks


def _delta(step: int, block: Block, offset: int, piece: str) -> Delta:
    match block:
        case Text():
            return AssistantDelta(step=step, block_id=block.block_id, offset=offset, delta=piece)
        case Reasoning():
            return ReasoningDelta(step=step, block_id=block.block_id, offset=offset, delta=piece)
        case ToolCall():
            return ToolCallDelta(
                step=step,
                block_id=block.block_id,
                index=block.index,
                name=block.name,
                offset=offset,
                delta=piece,
            )


def _usage(blocks: list[tuple[Block, str]], request: ModelRequest, turn: Turn) -> Usage:
    asked = len(request.system) + sum(len(str(message)) for message in request.messages)
    return estimated_usage(asked, sum(len(text) for _, text in blocks), len(turn.reasoning))
