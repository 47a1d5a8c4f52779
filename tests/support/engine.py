"""The engine by itself: a folder, a script, and the events that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from agent.budget import Limits
from agent.calls import arguments_digest
from agent.events import (
    AgentEvent,
    ApprovalRequired,
    ApprovalResolved,
    AssistantMessageAdded,
    ReasoningMessage,
    StoredEvent,
    TaskCreated,
    ToolCallRequested,
)
from agent.loop import LIVE, Retries, run
from agent.policy import Mode, Policy
from agent.providers import Model
from agent.providers.scripted import ScriptedProvider, Turn, TurnFor
from agent.toolbox import Tool, Toolbox
from agent.tools import builtin_tools
from agent.transcript import Transcript
from agent.workspace import Workspace

REPLY_PARTS = (AssistantMessageAdded, ReasoningMessage, ToolCallRequested)


@dataclass
class Bench:
    """One task of one session, run as often as the test likes; `log` is what a store would hold."""

    folder: Path
    turns: Sequence[Turn | TurnFor]
    limits: Limits = field(default_factory=Limits)
    mode: Mode = "ask"
    tools: Sequence[Tool] = field(default_factory=builtin_tools)
    repeat_limit: int = 6
    retries: Retries = field(default_factory=lambda: Retries(first_delay=0.001))
    others: Sequence[Model] = ()
    """Models that stand in."""
    log: list[StoredEvent] = field(default_factory=list)
    seen: list[AgentEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.provider = ScriptedProvider(self.turns)
        self.log.append(TaskCreated(goal="Compare the quotes", session_id="s", trigger="api"))

    async def run(
        self, stop_at: type | None = None, die_after: int | None = None
    ) -> list[AgentEvent]:
        """One run from the log as it is; with `stop_at`, killed when that event was stored, with
        `die_after`, when so many were. A reply is stored whole or not at all, as in the store."""
        reply: list[StoredEvent] = []
        left = die_after
        transcript = self.transcript = Transcript(self.log)
        produced: list[AgentEvent] = []
        toolbox = Toolbox(self.tools)
        engine = run(
            transcript,
            [Model(provider=self.provider), *self.others],
            toolbox,
            Policy(mode=self.mode),
            self.limits,
            workspace=Workspace(self.folder),
            system=lambda: "You are a test.",
            repeat_limit=self.repeat_limit,
            retries=self.retries,
        )
        async with aclosing(engine) as events:
            async for event in events:
                produced.append(event)
                if isinstance(event, REPLY_PARTS):
                    reply.append(event)
                elif not isinstance(event, LIVE):
                    self.log += [*reply, event]
                    reply.clear()
                    left = None if left is None else left - 1
                if left == 0 or (stop_at is not None and isinstance(event, stop_at)):
                    break
        toolbox.close()
        self.seen += produced
        return produced

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
