"""What would happen to a call, and why; and what would have happened to the calls of past tasks.

The same judge as in a run, over the rules in force and, if asked, over rules that do not count
yet. Nothing is run, nothing is claimed, nothing is stored.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from asgiref.sync import sync_to_async

from agent.events import ToolCallRequested, from_payload
from agent.judging import Judge
from agent.patterns import tidied
from agent.policy import Decision, Mode, Policy, Rule, Scope, Verdict
from agent.workspace import Workspace as Guard
from tasks import rules, toolboxes, wiring
from tasks.models import Session, Task, TaskEvent, Workspace
from tasks.rules import Places


@dataclass(frozen=True, kw_only=True)
class Question:
    """One call that nobody makes."""

    workspace: Workspace
    tool: str
    arguments: Mapping[str, Any]
    trigger: str = Task.Trigger.CHAT
    mode: str = ""
    """What the request would ask for."""
    session: Session | None = None


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A call of a past task: what policy said then and says now."""

    task_id: UUID
    sequence: int
    tool: str
    arguments: Mapping[str, Any]
    then: str
    then_rule: str
    now: Decision

    @property
    def differs(self) -> bool:
        return self.then != self.now.decision


@dataclass(frozen=True, kw_only=True)
class RuleSet:
    """Which rules count."""

    extra: Sequence[Rule] = ()
    """Beside those in force, wherever the call is."""
    stored: bool = True
    """Those in force count as well."""

    async def at(self, places: Places) -> list[Rule]:
        stored = await sync_to_async(rules.in_force)(places) if self.stored else []
        return [*stored, *self.extra]


class RuleText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule as somebody writes it down to try it."""

    decision: Verdict
    scope: Scope = "global"
    capability: str = ""
    tool: str = ""
    path: str = ""
    host: str = ""
    command: str = ""
    priority: int = 0
    final: bool = False
    note: str = ""

    def rule(self, number: int) -> Rule:
        fields = msgspec.structs.asdict(self)
        label = fields.pop("note") or f"{number} of the file"
        for name in ("path", "host", "command"):
            try:
                fields[name] = tidied(name, fields[name])
            except ValueError as problem:
                raise ValueError(f"Rule {number}, {name}: {problem}") from problem
        return Rule(id=f"file:{number}", label=label, **fields)


def rules_from(text: bytes) -> list[Rule]:
    """A JSON list of rules. Raises ValueError with a sentence."""
    try:
        written = msgspec.json.decode(text, type=list[RuleText])
    except msgspec.DecodeError as error:
        raise ValueError(f"These are no rules: {error}.") from error
    return [each.rule(number) for number, each in enumerate(written, 1)]


async def explain(question: Question, rule_set: RuleSet | None = None) -> Decision:
    """What policy would say."""
    session = question.session
    mode = wiring.mode_of(
        question.trigger,
        question.workspace.mode,
        "" if session is None else session.mode,
        question.mode,
    )
    places = Places(
        workspace_id=question.workspace.pk, session_id=None if session is None else session.pk
    )
    counting = await (rule_set or RuleSet()).at(places)
    judge = await sync_to_async(_judge)(question.workspace, mode, counting)
    return await judge.decide(question.tool, dict(question.arguments))


async def replay(tasks: Sequence[Task], rule_set: RuleSet | None = None) -> AsyncIterator[Replayed]:
    """The calls of these tasks, judged again: under the rules and modes of now, against the files
    of now. Load `session.workspace` with the tasks."""
    for task in tasks:
        session = task.session
        mode = wiring.mode_of(task.trigger, session.workspace.mode, session.mode, task.mode)
        counting = await (rule_set or RuleSet()).at(rules.places_of(task))
        judge = await sync_to_async(_judge)(session.workspace, mode, counting)
        for call in await sync_to_async(_calls)(task):
            now = await judge.decide(call.event.name, call.event.arguments)
            yield Replayed(
                task_id=task.pk,
                sequence=call.sequence,
                tool=call.event.name,
                arguments=call.event.arguments or {},
                then=call.event.decision,
                then_rule=call.event.rule,
                now=now,
            )


def latest_tasks(count: int, **where: Any) -> list[Task]:
    """The newest tasks, ready to be replayed."""
    return list(Task.objects.select_related("session__workspace").filter(**where)[:count])


@dataclass(frozen=True, kw_only=True)
class _Call:
    sequence: int
    event: ToolCallRequested = field(repr=False)


def _calls(task: Task) -> list[_Call]:
    """Calls that could be judged: what was not an object never was."""
    found = []
    stored = TaskEvent.objects.filter(task=task, type="tool_call_requested")
    for sequence, payload in stored.order_by("sequence").values_list("sequence", "payload"):
        event = from_payload("tool_call_requested", payload)
        if isinstance(event, ToolCallRequested) and event.arguments is not None:
            found.append(_Call(sequence=sequence, event=event))
    return found


def _judge(workspace: Workspace, mode: Mode, counting: Sequence[Rule]) -> Judge:
    return Judge(
        policy=Policy(mode=mode, rules=counting),
        toolbox=toolboxes.toolbox(workspace),
        workspace=Guard(Path(workspace.root)),
        closely=True,
    )
