"""The policy settings in force, each with where it comes from. Read-only, and without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from agent.mcp.declared import Server
from agent.scrub import Scrubber
from tasks.admin import words
from tasks.conf import Conf, conf
from tasks.policy_in_force import policy_in_force
from tasks.words import say

SHOWN: dict[str, tuple[tuple[str, str], ...]] = {
    "Modes in force": (
        ("mode", "for the chat page, the API and commands"),
        ("unattended_mode", "for schedules and webhooks"),
    ),
    "Approvals": (
        ("approval_ttl_seconds", "seconds until silence counts as no"),
        ("approver_groups", "capabilities that only members of a group approve"),
        ("other_approver", "capabilities that whoever asked for the task does not approve"),
        ("two_approvers", "capabilities that need two people's yes"),
        ("remind_at", "when people are reminded: below 1 a part of the time, else seconds"),
        ("mail_from", "sender of mails about what waits"),
        ("mail_language", "language of these mails"),
        ("notify_url", "webhook that says that something waits"),
        ("notify_key", "signs the webhook"),
        ("notify_private", "the webhook may be in a private network"),
        ("repeat_limit", "identical calls in a row until a person is asked; 0: never"),
    ),
    "Tools beyond files": (
        ("enable_shell", "run_command: shell lines in the workspace"),
        ("shell_seconds", "seconds of one command"),
        ("shell_memory_mb", "megabytes of one command's processes together"),
        ("shell_unsandboxed", "commands run even where there is no sandbox"),
        ("enable_web", "fetch_url: pages of the public web"),
        ("mcp_servers", "MCP servers; a workspace names those that it uses"),
    ),
    "Undoing": (
        ("undo_days", "days that what files held before a call is kept"),
        ("undo_mb", "megabytes of it over all tasks; 0: nothing is kept"),
    ),
    "Limits of a task": (
        ("max_agent_steps", "steps"),
        ("max_task_seconds", "seconds of work; waiting for people is free"),
        ("max_task_tokens", "tokens"),
        ("max_task_cost", "cost"),
    ),
    "Limits of a session, a person's day, everybody's day": (
        *(
            (f"max_{whose}_{what}", of)
            for whose, of in (
                ("session", "of a session over all its tasks"),
                ("user", "of one person within a day"),
                ("day", "of everybody together within a day"),
            )
            for what in ("steps", "seconds", "tokens", "cost")
        ),
        ("budget_asks", "ask the owner for as much again instead of ending a task"),
    ),
    "Limits of the server": (
        ("max_active_runs", "runs at once"),
        ("max_queued_per_user", "waiting tasks per user"),
        ("drain_seconds", "seconds that running tools get at a shutdown"),
    ),
    "Model": (
        ("llm_provider", "kind of provider"),
        ("llm_base_url", "endpoint"),
        ("llm_model", "model"),
        ("llm_api_key", "key"),
        ("demo_model", "scripted demo when no model is set"),
    ),
    "Where": (
        ("public_url", "address for people"),
        ("var_dir", "folder of our own state"),
        ("workspaces_dir", "folder of the workspaces"),
        ("skills_dir", "skills for every workspace; not set: none but our own and the workspace's"),
        ("audit_key", "key of the hash chains"),
        ("secrets_key", "seals the keys of model profiles"),
        ("signing_key", "signs exports"),
        ("redis_url", "several processes share this Redis; not set: one server"),
    ),
}
SECRET = frozenset(field.name for field in fields(Conf) if not field.repr)
"""What a `Conf` does not show of itself, no page shows."""
UNSEEN = frozenset({"variables", "given"})
"""Not settings of their own."""
KEY_FILES = frozenset({"audit_key", "secrets_key", "signing_key"})
PLAIN_NAMES = {"redis_url": "REDIS_URL"}
"""Variables without our prefix."""
OTHERS = "Other settings"
"""Whatever the tables above do not name: a new setting is on the page from the start."""
MODES = {
    "ask": "A person decides about every effect.",
    "deny": "What would be asked is refused.",
    "read_only": "Reads, and nothing else.",
}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting as it is in force."""

    name: str
    value: str
    meaning: str
    source: str


def page() -> dict[str, Any]:
    """Context of the page."""
    settings = conf()
    named = {name for rows in SHOWN.values() for name, _ in rows} | UNSEEN
    others = tuple(
        (field.name, "explained in .env.example")
        for field in fields(Conf)
        if field.name not in named
    )
    return {
        "groups": [
            (say(title), [_setting(settings, name, say(meaning)) for name, meaning in rows])
            for title, rows in {**SHOWN, OTHERS: others}.items()
        ],
        "policy": policy_in_force(),
    }


def _setting(settings: Conf, name: str, meaning: str) -> Setting:
    variable = PLAIN_NAMES.get(name, f"PILOTHOUSE_{name.upper()}")
    given, value = variable in settings.given, getattr(settings, name)
    return Setting(
        name=variable,
        value=_shown(name, value),
        meaning=f"{meaning}. {say(MODES[str(value)])}" if str(value) in MODES else meaning,
        source=say("environment or .env") if given else _default_source(name),
    )


def _default_source(name: str) -> str:
    if name in KEY_FILES:
        return say("file {name}, made by set-up", name=name.replace("_", "."))
    with_default = {
        field.name
        for field in fields(Conf)
        if field.default is not MISSING or field.default_factory is not MISSING
    }
    return (
        say("default")
        if name in with_default or name == "var_dir"
        else say("default, inside PILOTHOUSE_VAR_DIR")
    )


def _shown(name: str, value: object) -> str:
    if name in SECRET:
        return say("set, not shown") if value else say("not set")
    match value:
        case None:
            return say("no limit") if name.startswith("max_") else say("not set")
        case bool():
            return say("on") if value else say("off")
        case float():
            return f"{value:g}"
        case "" | ():
            return say("not set")
        case str() if "://" in value:
            return Scrubber()(value)  # a user and a password may stand in it
        case tuple():
            return ", ".join(map(str, value))
        case Mapping():
            return ", ".join(_pair(key, item) for key, item in value.items()) or say("not set")
        case _:
            return str(value)


def _pair(name: object, value: object) -> str:
    if isinstance(value, Server):
        return f"{name} ({value.where}; {words.count(len(value.tools), '{n} tool', '{n} tools')})"
    return f"{name}={value}"
