"""The policy in force: what becomes of each tool's call, and whose yes it needs.

Before any rule, for the settings page and the admin, which show the same; and for one session, with
its modes and the rules that are about a whole tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agent.budget import Limits
from agent.policy import ALLOWED_ACTIONS, ASKED_ACTIONS, Decision, Mode, Policy, Rule, Subject
from tasks import quorum, rules, toolboxes, wiring
from tasks.conf import conf
from tasks.models import Session, Task, Workspace
from tasks.rules import Places

Source = Literal["default", "mode", "rule"]
ModeSource = Literal["server", "workspace", "session"]


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What becomes of one kind of call."""

    name: str
    """The tool, or the last segment of a capability."""
    capability: str
    watched: Decision
    unattended: Decision
    demands: quorum.Demands


@dataclass(frozen=True, kw_only=True)
class InForce:
    mode: Mode
    unattended_mode: Mode
    actions: Sequence[Judged]
    """What follows from the last segment of a capability alone."""
    tools: Sequence[Judged]
    limits: Limits
    approval_seconds: float


@dataclass(frozen=True, kw_only=True)
class InSession:
    """What the tasks of a session may do. A rule that is narrower than a tool is not judged here."""

    mode: Mode
    mode_of: ModeSource
    """Who says so: the widest that does."""
    unattended_mode: Mode
    tools: Sequence[Judged]


OTHER_ACTIONS = "anything else, or none"


def policy_in_force() -> InForce:
    settings = conf()
    modes = _Modes.of()
    actions = [(action, f"example:{action}") for action in sorted(ALLOWED_ACTIONS | ASKED_ACTIONS)]
    actions.append((OTHER_ACTIONS, ""))
    return InForce(
        mode=modes.watched,
        unattended_mode=modes.unattended,
        actions=[_judged(name, capability, "", modes) for name, capability in actions],
        tools=_tools(modes),
        limits=Limits(
            max_steps=settings.max_agent_steps,
            max_seconds=settings.max_task_seconds,
            max_tokens=settings.max_task_tokens,
            max_cost=settings.max_task_cost,
        ),
        approval_seconds=settings.approval_ttl_seconds,
    )


def in_session(session: Session) -> InSession:
    """Reads `session.workspace`; asks the database for the rules."""
    modes = _Modes.of(session.workspace.mode, session.mode)
    counting = rules.in_force(Places(workspace_id=session.workspace_id, session_id=session.pk))
    return InSession(
        mode=modes.watched,
        mode_of=_who_says(modes.watched, session),
        unattended_mode=modes.unattended,
        tools=_tools(modes, counting, session.workspace),
    )


def source_of(decision: Decision) -> Source:
    """What decided: a rule, else the mode, else the default."""
    if decision.rule_id:
        return "rule"
    return "mode" if decision.rule.startswith("mode:") else "default"


@dataclass(frozen=True, kw_only=True)
class _Modes:
    watched: Mode
    unattended: Mode

    @classmethod
    def of(cls, *others: str) -> _Modes:
        """With what workspace and session ask for."""
        return cls(
            watched=wiring.mode_of(Task.Trigger.CHAT, *others),
            unattended=wiring.mode_of(Task.Trigger.CRON, *others),
        )


def _who_says(mode: Mode, session: Session) -> ModeSource:
    if conf().mode == mode:
        return "server"
    return "workspace" if session.workspace.mode == mode else "session"


def _tools(
    modes: _Modes, counting: Sequence[Rule] = (), workspace: Workspace | None = None
) -> list[Judged]:
    return [
        _judged(tool.name, tool.capability, tool.name, modes, counting)
        for tool in toolboxes.toolbox(workspace).tools
    ]


def _judged(
    name: str, capability: str, tool: str, modes: _Modes, counting: Sequence[Rule] = ()
) -> Judged:
    subject = Subject(tool=tool, capability=capability)
    return Judged(
        name=name,
        capability=capability,
        watched=Policy(mode=modes.watched, rules=counting).decide(subject),
        unattended=Policy(mode=modes.unattended, rules=counting).decide(subject),
        demands=quorum.demands_of(capability),
    )
