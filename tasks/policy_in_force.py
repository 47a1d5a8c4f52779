"""The policy in force, before any rule: what becomes of each tool's call, and whose yes it needs.

The settings page and the admin show the same, made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from agent.budget import Limits
from agent.policy import ALLOWED_ACTIONS, ASKED_ACTIONS, Decision, Mode, Policy, Subject
from tasks import quorum, wiring
from tasks.conf import conf


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
    mode: str
    unattended_mode: str
    actions: Sequence[Judged]
    """What follows from the last segment of a capability alone."""
    tools: Sequence[Judged]
    limits: Limits
    approval_seconds: float


def policy_in_force() -> InForce:
    settings = conf()
    actions = [(action, f"example:{action}") for action in sorted(ALLOWED_ACTIONS | ASKED_ACTIONS)]
    actions.append(("anything else, or none", ""))
    return InForce(
        mode=settings.mode,
        unattended_mode=settings.unattended_mode,
        actions=[_judged(name, capability, "") for name, capability in actions],
        tools=[_judged(tool.name, tool.capability, tool.name) for tool in wiring.toolbox().tools],
        limits=Limits(
            max_steps=settings.max_agent_steps,
            max_seconds=settings.max_task_seconds,
            max_tokens=settings.max_task_tokens,
            max_cost=settings.max_task_cost,
        ),
        approval_seconds=settings.approval_ttl_seconds,
    )


def _judged(name: str, capability: str, tool: str) -> Judged:
    subject, settings = Subject(tool=tool, capability=capability), conf()
    watched, unattended = (
        Policy(mode=cast(Mode, mode)).decide(subject)
        for mode in (settings.mode, settings.unattended_mode)
    )
    return Judged(
        name=name,
        capability=capability,
        watched=watched,
        unattended=unattended,
        demands=quorum.demands_of(capability),
    )
