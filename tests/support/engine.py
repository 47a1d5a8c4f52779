"""The engine by itself: a folder, a script, and the events that come of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from agent.budget import Limits
from agent.entries import Place
from agent.errors import ProviderError
from agent.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    AssistantMessageAdded,
    Delta,
    LiveEvent,
    ReasoningMessage,
    StoredEvent,
    TaskCreated,
    Tell,
    ToolCallRequested,
)
from agent.judging import Claim, Judge, ReadRules
from agent.loop import Retries, run
from agent.mcp.connections import Connections
from agent.messages import Reply, Text, Usage
from agent.policy import Mode, Policy, Rule
from agent.providers import CONTEXT_TOKENS, Model, ModelRequest, Prices
from agent.providers.scripted import ScriptedProvider, Turn, TurnFor
from agent.toolbox import Tool, Toolbox, arguments_digest
from agent.tools import builtin_tools
from agent.transcript import Transcript
from agent.workspace import Workspace


class SummarizingProvider(ScriptedProvider):
    """Plays its script, and writes summaries beside it when it is asked for one."""

    def __init__(self, turns: Sequence[Turn | TurnFor]) -> None:
        super().__init__(turns)
        self.summarized: list[ModelRequest] = []
        self.refuses: ProviderError | None = None
        """Raised instead of a summary."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        if request.tools:
            async with aclosing(super().stream(request)) as stream:
                async for item in stream:
                    yield item
            return
        self.summarized.append(request)
        if self.refuses is not None:
            raise self.refuses
        text = Text(block_id="s", text=f"Summary {len(self.summarized)}.")
        usage = Usage(input_tokens=50, output_tokens=5)
        yield Reply(blocks=(text,), finish_reason="stop", usage=usage)


def fold(log: Sequence[StoredEvent]) -> Transcript:
    """The transcript of a log, every event at its place."""
    transcript = Transcript()
    for sequence, event in enumerate(log, start=1):
        transcript.place = Place(task_id="t", sequence=sequence)
        transcript.apply(event)
    return transcript


@cache
def _standard() -> Toolbox:
    """One for all, as in a server: to look through the schemas takes longer than most runs."""
    return Toolbox(builtin_tools())


REPLY_PARTS = (AssistantMessageAdded, ReasoningMessage, ToolCallRequested)


class Killed(Exception):
    """Ends a run at an event."""


@dataclass
class Bench:
    """One task of one session, run as often as the test likes; `log` is what a store would hold."""

    folder: Path
    turns: Sequence[Turn | TurnFor]
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "ask"
    rules: Sequence[Rule] = ()
    read_rules: ReadRules | None = None
    claim: Claim | None = None
    tools: Sequence[Tool] = field(default_factory=builtin_tools)
    repeat_limit: int = 6
    retries: Retries = field(default_factory=lambda: Retries(first_delay=0.001))
    context_tokens: int = CONTEXT_TOKENS
    prices: Prices | None = None
    others: Sequence[Model] = ()
    """Models that stand in."""
    connections: Connections | None = None
    system: str = "You are a test."
    tell: Tell | None = None
    """Hears everything first."""
    log: list[StoredEvent] = field(default_factory=list)
    seen: list[AgentEvent] = field(default_factory=list)
    _box: Toolbox | None = None

    def __post_init__(self) -> None:
        self.provider = SummarizingProvider(self.turns)
        self.log.append(TaskCreated(goal="Compare the quotes", session_id="s", trigger="api"))

    async def run(
        self, stop_at: type | None = None, die_after: int | None = None
    ) -> list[AgentEvent]:
        """One run from the log as it is; with `stop_at`, killed when that event was stored, with
        `die_after`, when so many were. A reply is stored whole or not at all, as in the store."""
        reply: list[StoredEvent] = []
        left = die_after
        transcript = self.transcript = fold(self.log)
        produced: list[AgentEvent] = []

        async def hear(event: AgentEvent) -> None:
            nonlocal left
            if self.tell is not None:
                await self.tell(event)
            produced.append(event)
            if isinstance(event, REPLY_PARTS):
                reply.append(event)
            elif not isinstance(event, LiveEvent):
                self.log += [*reply, event]
                transcript.place = Place(task_id="t", sequence=len(self.log))
                reply.clear()
                left = None if left is None else left - 1
            if left == 0 or (stop_at is not None and isinstance(event, stop_at)):
                raise Killed

        engine = run(
            transcript,
            [
                Model(
                    provider=self.provider,
                    context_tokens=self.context_tokens,
                    prices=self.prices,
                ),
                *self.others,
            ],
            Judge(
                policy=Policy(mode=self.mode, rules=self.rules),
                toolbox=self._toolbox(),
                workspace=Workspace(self.folder),
                read_rules=self.read_rules,
                claim=self.claim,
                connections=self.connections,
            ),
            self.limits,
            hear,
            system=self.system,
            repeat_limit=self.repeat_limit,
            retries=self.retries,
        )
        with suppress(Killed):
            await engine
        self.seen += produced
        return produced

    def _toolbox(self) -> Toolbox:
        tools = tuple(self.tools)
        if self._box is None or self._box.tools != tools:
            self._box = _standard() if tools == _standard().tools else Toolbox(tools)
        return self._box

    def answer(self, status: str, call_id: str = "", **more: Any) -> None:
        """A person's reply to the newest question (about `call_id`)."""
        asked = [
            event
            for event in self.log
            if isinstance(event, ApprovalRequired) and call_id in ("", event.tool_call_id)
        ][-1]
        edited = more.get("edited_arguments")
        digest = arguments_digest(asked.name, edited) if edited else asked.arguments_digest
        resolved = ApprovalResolved(
            approval_id=more.pop("approval_id", "approval"),
            kind=asked.kind,
            tool_call_id=asked.tool_call_id,
            status=status,
            arguments_digest=digest,
            target_digest=more.pop("target_digest", asked.target_digest),
            resolved_by="alice",
        )
        self.log.append(msgspec.structs.replace(resolved, **more))

    def of(self, kind: type) -> list[Any]:
        """The log's events of one type."""
        return [event for event in self.log if isinstance(event, kind)]
