"""What a call may do: its subject, a mode and the rules in; allow | ask | deny and why out. Pure.

The order of judgement, each step written into the decision's chain:

1. A tool without a known capability is denied. (The path guard has refused before that.)
2. In mode `read_only` everything but reading is denied.
3. Any matching rule that denies, whatever its scope.
4. The rules of administrators, then those that people made from a card; within each a `final` one,
   then the highest priority, then the narrower scope, then ask over allow.
5. The default: by the last segment of the capability.

What would be asked is denied in mode `deny`. No rule lets a write under `skills/` or `memory/` pass
unasked, and none allows a command that cannot be read with certainty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from agent.paths import always_asks
from agent.patterns import exactly, fits_name, fits_path, fits_words

Mode = Literal["ask", "deny", "read_only"]
"""ask: a person decides · deny: what would be asked is refused · read_only: reads, nothing else"""

Verdict = Literal["allow", "ask", "deny"]
Scope = Literal["global", "workspace", "session", "task"]

REPLY_SCOPES = ("once", "task", "session", "always")
"""How far a person's answer to a card may reach; `always` is a rule of the workspace."""

ALLOWED_ACTIONS = frozenset({"read", "list"})
ASKED_ACTIONS = frozenset({"write", "create", "update", "delete", "execute", "network"})

CAPABILITY = re.compile(r"[a-z0-9_-]+(:[a-z0-9_-]+)+")
_STRICTNESS: dict[Mode, int] = {"ask": 0, "deny": 1, "read_only": 2}
_SEVERITY: dict[Verdict, int] = {"allow": 0, "ask": 1, "deny": 2}
_NARROWNESS: dict[Scope, int] = {"global": 0, "workspace": 1, "session": 2, "task": 3}
_VERBS: dict[Verdict, str] = {"allow": "allows", "ask": "asks about", "deny": "denies"}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What is judged: one call, as far as rules can speak about it."""

    tool: str
    capability: str
    paths: tuple[str, ...] = ()
    """Where it reaches in the workspace, links resolved."""
    host: str = ""
    """Normalised host name that it talks to."""
    commands: tuple[tuple[str, ...], ...] | None = ()
    """Every simple command that it would run, as words; None: not known with certainty."""
    digest: str = ""
    """Of the tool and its exact arguments."""
    exact: bool = False
    """What it is about are all its arguments: a rule made from a card fits no other call."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule in force. A pattern that is empty fits everything."""

    id: str
    decision: Verdict
    scope: Scope = "global"
    capability: str = ""
    tool: str = ""
    path: str = ""
    host: str = ""
    command: str = ""
    digest: str = ""
    """Fits one exact call."""
    priority: int = 0
    final: bool = False
    """Decides over every other rule but one that denies."""
    from_card: bool = False
    """Made by answering a card, not by an administrator."""
    limited: bool = False
    """It counts its uses: see `agent.judging`."""
    label: str = ""

    def __str__(self) -> str:
        return f"{self.scope} rule “{self.label or self.id}”"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What policy says about one call."""

    decision: Verdict
    rule: str
    """Where the decision comes from, e.g. `default: file:write asks`."""
    reason: str
    """The same for people, as a sentence."""
    scope: str = ""
    """Scope of the rule that decided; empty when no rule did."""
    rule_id: str = ""
    uses: tuple[str, ...] = ()
    """Rules that allow it and count their uses; a command line may need several."""
    from_administrator: bool = False
    """An administrator's rule decided: no answer to a card can stand against it."""
    chain: tuple[str, ...] = ()
    """What was looked at on the way, in order."""
    paths: tuple[str, ...] = ()
    """Where the call reaches, as it was judged; none: that did not matter."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Judges calls under one mode and the rules in force."""

    mode: Mode = "ask"
    rules: Sequence[Rule] = ()

    def decide(self, subject: Subject) -> Decision:
        """Each command of a command line is judged alone; the strictest verdict counts."""
        if not subject.commands:
            return self._decide(subject)
        parts = [self._decide(replace(subject, commands=(words,))) for words in subject.commands]
        strictest = max(parts, key=_severity)
        agreeing = [part for part in parts if part.decision == strictest.decision]
        return replace(
            strictest,
            uses=tuple(dict.fromkeys(rule for part in agreeing for rule in part.uses)),
            from_administrator=any(part.from_administrator for part in agreeing),
        )

    def permits(self, tool: str, capability: str, path: str) -> bool:
        """Whether a tool that looks through many places may show this one unasked."""
        subject = Subject(tool=tool, capability=capability, paths=(path,))
        return self.decide(subject).decision == "allow"

    def without(self, rule_id: str) -> Policy:
        """The same with one rule left out."""
        return replace(self, rules=[rule for rule in self.rules if rule.id != rule_id])

    def without_rules(self, tool: str, capability: str) -> Decision:
        """What counts where no rule matches; nothing else of a call matters then."""
        return _without_rules(self.mode, capability, tool)

    def _decide(self, subject: Subject) -> Decision:
        default = _default(subject.capability, subject.tool)
        unless_asked = self.mode == "read_only" and default.decision == "ask"
        if default.decision != "deny" and not unless_asked:
            matching = [rule for rule in self.rules if _matches(rule, subject)]
            if matching:
                found = _by_rules(matching, subject, default)
                return _within_mode(self.mode, found, subject.capability, subject.tool)
        return self.without_rules(subject.tool, subject.capability)


def strictest(*modes: Mode) -> Mode:
    """The mode that allows least; `ask` when none is given."""
    return max(modes, key=_STRICTNESS.__getitem__, default="ask")


# ── rules ─────────────────────────────────────────────────────────────────────────────────────


def _by_rules(matching: Sequence[Rule], subject: Subject, default: Decision) -> Decision:
    """Steps 3 and 4, and what no rule can allow."""
    ranked = sorted(matching, key=_rank, reverse=True)
    winner = ranked[0]
    chain = [f"{rule} {_VERBS[rule.decision]} {subject.capability}" for rule in ranked]
    chain.append(default.rule)
    decided = Decision(
        decision=winner.decision,
        rule=chain[0],
        reason=_because(winner, subject),
        scope=winner.scope,
        rule_id=winner.id,
        uses=(winner.id,) if winner.limited and winner.decision == "allow" else (),
        from_administrator=not winner.from_card,
        chain=tuple(chain),
    )
    if winner.decision != "allow":
        return decided
    hindrance = _hindrance(subject, default)
    if not hindrance:
        return decided
    return Decision(
        decision="ask",
        rule=f"always asked: {hindrance}",
        reason=f"{hindrance[0].upper()}{hindrance[1:]}, so a person decides whatever the rules say.",
        from_administrator=True,
        chain=(f"always asked: {hindrance}", *chain),
    )


def _rank(rule: Rule) -> tuple[bool, bool, bool, int, int, int]:
    return (
        rule.decision == "deny",
        not rule.from_card,
        rule.final,
        rule.priority,
        _NARROWNESS[rule.scope],
        _SEVERITY[rule.decision],
    )


def _because(rule: Rule, subject: Subject) -> str:
    match rule.decision:
        case "allow":
            return f"A {rule} allows it."
        case "ask":
            return f"A {rule} wants a person to decide about {subject.tool}."
        case "deny":
            return f"A {rule} does not allow it."


def _hindrance(subject: Subject, default: Decision) -> str:
    """Why an allowing rule is not enough; empty when it is."""
    if default.decision == "ask" and any(always_asks(path) for path in subject.paths):
        return "what later runs read as their own would change"
    if subject.commands is None:
        return "what this command line runs cannot be told with certainty"
    return ""


def _matches(rule: Rule, subject: Subject) -> bool:
    if not fits_name(rule.tool, subject.tool) or not fits_name(rule.capability, subject.capability):
        return False
    if rule.digest and rule.digest != subject.digest:
        return False
    if rule.host and not (subject.host and fits_name(rule.host, subject.host)):
        return False
    return _path_matches(rule, subject) and _command_matches(rule, subject)


def _path_matches(rule: Rule, subject: Subject) -> bool:
    """To allow, a rule must fit every path; to stop, one is enough, in whatever spelling."""
    if not rule.path:
        return True
    loosely = rule.decision != "allow"
    fitting = [fits_path(rule.path, path, loosely=loosely) for path in subject.paths]
    return any(fitting) if loosely else bool(fitting) and all(fitting)


def _command_matches(rule: Rule, subject: Subject) -> bool:
    if not rule.command:
        return True
    loosely = rule.decision != "allow"
    return bool(subject.commands) and fits_words(
        rule.command, (subject.commands or ((),))[0], loosely=loosely
    )


def _severity(decision: Decision) -> int:
    return _SEVERITY[decision.decision]


# ── rules made from a card ────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What a rule made from a card would fit: this call's place, or this exact call."""

    tool: str
    capability: str
    path: str = ""
    host: str = ""
    digest: str = ""
    says: str
    """The same for people."""


def standing(subject: Subject) -> Standing | None:
    """The narrowest pattern for calls like this one; None when none may pass unasked.

    `subject` was looked at closely."""
    if subject.commands is None or any(always_asks(path) for path in subject.paths):
        return None
    tool, capability = subject.tool, subject.capability
    if len(subject.paths) == 1 and not subject.exact:
        path = subject.paths[0]
        says = f"{tool} on {path}"
        return Standing(tool=tool, capability=capability, path=exactly(path), says=says)
    if subject.host and not subject.exact:
        says = f"{tool} to {subject.host}"
        return Standing(tool=tool, capability=capability, host=subject.host, says=says)
    says = f"exactly this call of {tool}"
    return Standing(tool=tool, capability=capability, digest=subject.digest, says=says)


# ── defaults ──────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=256)
def _default(capability: str, tool: str) -> Decision:
    """By the last segment of a capability, `resource:action`."""
    if not capability:
        rule = "default: no capability is denied"
        return _plain("deny", rule, f"{tool} does not declare what it needs.")
    action = capability.rpartition(":")[2] if CAPABILITY.fullmatch(capability) else ""
    if action in ALLOWED_ACTIONS:
        return _plain("allow", f"default: {capability} is allowed", f"{tool} only reads.")
    if action in ASKED_ACTIONS:
        reason = f"{tool} has an effect, so a person decides."
        return _plain("ask", f"default: {capability} asks", reason)
    rule = f"default: unknown capability {capability[:80]!r} is denied"
    return _plain("deny", rule, f"{tool} declares a capability that is not known.")


@lru_cache(maxsize=256)
def _without_rules(mode: Mode, capability: str, tool: str) -> Decision:
    default = _default(capability, tool)
    if mode == "read_only" and default.decision == "ask":
        reason = f"{tool} changes something and this run may only read."
        return _plain("deny", f"mode: read_only denies {capability}", reason)
    return _within_mode(mode, default, capability, tool)


def _within_mode(mode: Mode, found: Decision, capability: str, tool: str) -> Decision:
    if mode != "deny" or found.decision != "ask":
        return found
    rule = f"mode: deny denies {capability}"
    reason = f"{tool} needs an approval and in this run nobody is asked."
    return Decision(decision="deny", rule=rule, reason=reason, chain=(*found.chain, rule))


def _plain(decision: Verdict, rule: str, reason: str) -> Decision:
    return Decision(decision=decision, rule=rule, reason=reason, chain=(rule,))
