"""What a tool may do: capability and mode in, allow | ask | deny and the reason out. Pure.

Everything that is not known to be harmless is asked for, and everything unknown is denied. A mode
can only tighten.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Mode = Literal["ask", "deny", "read_only"]
"""ask: a person decides · deny: what would be asked is refused · read_only: reads, nothing else"""

Verdict = Literal["allow", "ask", "deny"]

ALLOWED_ACTIONS = frozenset({"read", "list"})
ASKED_ACTIONS = frozenset({"write", "create", "update", "delete", "execute", "network"})

_CAPABILITY = re.compile(r"[a-z0-9_-]+(:[a-z0-9_-]+)+")
_STRICTNESS: dict[Mode, int] = {"ask": 0, "deny": 1, "read_only": 2}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What policy says about one call."""

    decision: Verdict
    rule: str
    """Where the decision comes from, e.g. `default: file:write asks`."""
    reason: str
    """The same for people, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Judges calls under one mode."""

    mode: Mode = "ask"

    def decide(self, capability: str, tool: str) -> Decision:
        """The default of the capability, tightened by the mode."""
        default = _default(capability, tool)
        if self.mode == "ask" or default.decision != "ask":
            return default
        if self.mode == "read_only":
            reason = f"{tool} changes something and this run may only read."
        else:
            reason = f"{tool} needs an approval and in this run nobody is asked."
        return Decision(
            decision="deny", rule=f"mode: {self.mode} denies {capability}", reason=reason
        )


def strictest(*modes: Mode) -> Mode:
    """The mode that allows least; `ask` when none is given."""
    return max(modes, key=_STRICTNESS.__getitem__, default="ask")


def _default(capability: str, tool: str) -> Decision:
    """By the last segment of a capability, `resource:action`."""
    if not capability:
        return Decision(
            decision="deny",
            rule="default: no capability is denied",
            reason=f"{tool} does not declare what it needs.",
        )
    action = capability.rpartition(":")[2] if _CAPABILITY.fullmatch(capability) else ""
    if action in ALLOWED_ACTIONS:
        return Decision(
            decision="allow",
            rule=f"default: {capability} is allowed",
            reason=f"{tool} only reads.",
        )
    if action in ASKED_ACTIONS:
        return Decision(
            decision="ask",
            rule=f"default: {capability} asks",
            reason=f"{tool} has an effect, so a person decides.",
        )
    return Decision(
        decision="deny",
        rule=f"default: unknown capability {capability[:80]!r} is denied",
        reason=f"{tool} declares a capability that is not known.",
    )
