"""The settings that there are, by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from django.core.exceptions import ImproperlyConfigured

PREFIX = "PILOTHOUSE_"
_LIMITS: dict[str, tuple[type[int] | type[float], float]] = {
    "STEPS": (int, 1),
    "SECONDS": (float, 1),
    "TOKENS": (int, 1),
    "COST": (float, 0),
}
NUMBERS: dict[str, tuple[type[int] | type[float], float]] = {
    "MAX_AGENT_STEPS": (int, 1),
    "MAX_TASK_SECONDS": (float, 1),
    "MAX_TASK_TOKENS": (int, 1),
    "MAX_TASK_COST": (float, 0),
    **{
        f"MAX_{scope}_{which}": kind
        for scope in ("SESSION", "USER", "DAY")
        for which, kind in _LIMITS.items()
    },
    "APPROVAL_TTL_SECONDS": (float, 1),
    "REPEAT_LIMIT": (int, 0),
    "SHELL_SECONDS": (float, 1),
    "SHELL_MEMORY_MB": (int, 64),
    "UNDO_DAYS": (int, 1),
    "UNDO_MB": (int, 0),
    "LLM_CONNECT_SECONDS": (float, 0.1),
    "LLM_FIRST_BYTE_SECONDS": (float, 0.1),
    "LLM_IDLE_SECONDS": (float, 0.1),
    "LLM_ATTEMPTS": (int, 1),
    "LLM_CONTEXT_TOKENS": (int, 1000),
    "MAX_ACTIVE_RUNS": (int, 1),
    "MAX_QUEUED_PER_USER": (int, 1),
    "MAX_TASKS_PER_MINUTE": (int, 0),
    "MAX_DELIVERIES_PER_MINUTE": (int, 0),
    "SIGN_IN_TRIES": (int, 1),
    "SIGN_IN_PAUSE_SECONDS": (int, 1),
    "DRAIN_SECONDS": (float, 0),
    "LEASE_SECONDS": (float, 0.5),
    "WATCH_SECONDS": (float, 0.05),
    "SSE_HEARTBEAT_SECONDS": (float, 0.1),
    "DELTA_FLUSH_MS": (int, 0),
}
"""Numeric settings with their type and least value."""
WORDS = frozenset(
    {
        "APPROVER_GROUPS",
        "AUDIT_KEY",
        "BUDGET_ASKS",
        "DEMO_MODEL",
        "ENABLE_SHELL",
        "ENABLE_WEB",
        "HOST",
        "LLM_API_KEY",
        "LLM_BASE_URL",
        "LLM_MODEL",
        "LLM_PROVIDER",
        "LLM_STREAM",
        "MAIL_FROM",
        "MAIL_LANGUAGE",
        "MCP_SERVERS",
        "MODE",
        "NOTIFY_KEY",
        "NOTIFY_PRIVATE",
        "NOTIFY_URL",
        "OTHER_APPROVER",
        "PORT",
        "PUBLIC_URL",
        "REMIND_AT",
        "SECRETS_KEY",
        "SHELL_UNSANDBOXED",
        "SIGNING_KEY",
        "SKILLS_DIR",
        "TRUSTED_PROXIES",
        "TWO_APPROVERS",
        "UNATTENDED_MODE",
        "VAR_DIR",
        "WORKSPACES_DIR",
    }
)
"""The settings that are not numbers."""


def check(values: Mapping[str, str]) -> None:
    """A name with our prefix that is no setting stops the start."""
    for name in sorted(values):
        if name.startswith(PREFIX):
            _known(name)


def _known(name: str) -> None:
    suffixes = WORDS | NUMBERS.keys()
    if name.removeprefix(PREFIX) in suffixes:
        return
    near = difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1)
    hint = f"; did you mean {PREFIX}{near[0]}?" if near else "; .env.example lists all of them."
    raise ImproperlyConfigured(f"{name}: there is no such setting{hint}")
