"""The one decision point: every call passes `Judge.decide()`, when it is asked for, when it is
about to run, when a person edits it, and when somebody only wants to know.

The judge finds out what a call is about (through the guard, which refuses first), and lets the
policy decide. Rules may change while a run goes on, so a run refreshes them before it acts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import PathRefused, ToolFailed
from agent.mcp.connections import Connections
from agent.policy import Decision, Mode, Policy, Rule, Standing, standing
from agent.shelf import Shelf
from agent.toolbox import Toolbox, ToolContext
from agent.workspace import Workspace

ReadRules = Callable[[], Awaitable[Sequence[Rule]]]
"""The rules in force now."""
Claim = Callable[[str], Awaitable[bool]]
"""Takes one use of a rule that counts them; False: it is used up."""
AlwaysAsked = Callable[[str], bool]
"""Whether somebody has to be asked about every single call of a capability."""


@dataclass(kw_only=True)
class Judge:
    """Judges the calls of one run."""

    policy: Policy
    toolbox: Toolbox
    workspace: Workspace
    read_rules: ReadRules | None = None
    claim: Claim | None = None
    always_asked: AlwaysAsked | None = None
    """No card about such a capability leaves a rule."""
    closely: bool = False
    """Look at the target even where no rule needs it: the guard's word counts, too."""
    shelf: Shelf | None = None
    """Where effects keep what was there before them."""
    connections: Connections | None = None
    """To MCP servers, for the calls of this run."""

    @property
    def mode(self) -> Mode:
        return self.policy.mode

    async def refresh(self) -> None:
        """A rule that was made or revoked meanwhile counts from here on."""
        if self.read_rules is not None:
            rules = await self.read_rules()
            if rules is not self.policy.rules:
                self.policy = replace(self.policy, rules=rules)

    async def decide(self, tool: str, arguments: dict[str, Any] | None) -> Decision:
        """What policy says about a call; None for arguments that are not an object."""
        if not (self.policy.rules or self.closely):
            return self.policy.without_rules(tool, self.toolbox.capability_of(tool))
        try:
            subject = await self.toolbox.subject(tool, arguments, self.workspace)
        except (PathRefused, ToolFailed) as refusal:
            rule = "guard: refused"
            return Decision(decision="deny", rule=rule, reason=str(refusal), chain=(rule,))
        decision = self.policy.decide(subject)
        return replace(decision, paths=subject.paths) if subject.paths else decision

    async def settle(self, tool: str, arguments: dict[str, Any]) -> Decision:
        """The same for a call that runs at once if it is allowed: takes a use of each rule that
        allows a part of it. Where one has none left, those that were taken are lost."""
        taken: set[str] = set()
        while True:
            decision = await self.decide(tool, arguments)
            missing = await self._take(set(decision.uses) - taken)
            if missing is None:
                return decision
            taken |= set(decision.uses)
            self.policy = self.policy.without(missing)

    async def _take(self, uses: set[str]) -> str | None:
        """The first rule that is used up; None: all are taken."""
        if self.claim is not None:
            for rule_id in sorted(uses):
                if not await self.claim(rule_id):
                    return rule_id
        return None

    async def standing(
        self, tool: str, arguments: dict[str, Any], decision: Decision
    ) -> Standing | None:
        """What a rule made from a card about this call would fit; None: it could not count."""
        if decision.from_administrator or decision.decision == "deny":
            return None
        subject = await self.toolbox.subject(tool, arguments, self.workspace)
        if self.always_asked is not None and self.always_asked(subject.capability):
            return None
        return standing(subject)

    def context(self, tool: str, judged: tuple[str, ...] = (), **more: Any) -> ToolContext:
        """What the tool is given: what it walks over is what it may show. With the paths that were
        `judged`, it reaches these and follows no link."""
        capability = self.toolbox.capability_of(tool)

        def permits(path: str) -> bool:
            return self.policy.permits(tool, capability, path)

        if self.policy.rules:
            more["permits"] = permits
        workspace = self.workspace.unlinked() if judged else self.workspace
        return ToolContext(
            workspace=workspace,
            judged=judged,
            shelf=self.shelf,
            connections=self.connections,
            **more,
        )
