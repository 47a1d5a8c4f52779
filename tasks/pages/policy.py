"""The policy in force, for reading: what happens to each tool's call, and the limits around it."""

from __future__ import annotations

from typing import Any, cast

from agent.policy import ALLOWED_ACTIONS, ASKED_ACTIONS, Mode, Policy, Subject
from tasks import wiring
from tasks.conf import conf


def policy_in_force() -> dict[str, Any]:
    settings = conf()
    policy = Policy(mode=cast(Mode, settings.mode))
    decisions = [
        (
            tool.name,
            tool.capability,
            policy.decide(Subject(tool=tool.name, capability=tool.capability)),
        )
        for tool in wiring.toolbox().tools
    ]
    return {
        "mode": settings.mode,
        "unattended_mode": settings.unattended_mode,
        "allowed": sorted(ALLOWED_ACTIONS),
        "asked": sorted(ASKED_ACTIONS),
        "tools": [
            {"name": name, "capability": capability, "decision": found.decision, "rule": found.rule}
            for name, capability, found in decisions
        ],
        "limits": {
            "steps": settings.max_agent_steps,
            "seconds": settings.max_task_seconds,
            "tokens": settings.max_task_tokens,
            "cost": settings.max_task_cost,
        },
        "approval_seconds": settings.approval_ttl_seconds,
        "repeat_limit": settings.repeat_limit,
    }
