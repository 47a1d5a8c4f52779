"""Rows and settings -> what a run needs: provider, tools, policy, workspace, limits.

Built anew for every run, so a changed setting counts from the next run on. Only the HTTP pool to
the model is shared; it belongs to the loop of the process that runs tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import cast

import httpx
from django.utils import timezone

from agent.budget import Limits
from agent.policy import Mode, Policy, strictest
from agent.prompts import system_prompt
from agent.providers import Provider
from agent.providers.client import prepare_tls
from agent.providers.demo import demo_provider
from agent.providers.openai import OpenAIProvider, Quirks, make_client
from agent.toolbox import Toolbox
from agent.tools import builtin_tools
from agent.workspace import Workspace
from tasks.conf import Conf, conf
from tasks.models import Task
from tasks.models import Workspace as WorkspaceRow

TOOL_THREADS = 16
"""Plain tools that run at once, over all runs of this process."""
UNATTENDED = frozenset({Task.Trigger.WEBHOOK, Task.Trigger.CRON})


class NoModel(Exception):
    """No model is configured."""

    hint = (
        "Set PILOTHOUSE_LLM_BASE_URL and PILOTHOUSE_LLM_MODEL (and PILOTHOUSE_LLM_API_KEY where "
        "the provider needs a key), or PILOTHOUSE_DEMO_MODEL=1 for the scripted demo."
    )


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The collaborators of one run, besides its provider."""

    toolbox: Toolbox
    policy: Policy
    workspace: Workspace
    limits: Limits
    mode: Mode
    repeat_limit: int
    system: Callable[[], str] = field(repr=False)


def mode_of(trigger: str, requested: str) -> Mode:
    """The strictest of what the server says for this trigger and what the request asked for."""
    server = conf().unattended_mode if trigger in UNATTENDED else conf().mode
    modes = [server, requested] if requested else [server]
    return strictest(*(cast(Mode, mode) for mode in modes))


def kit_for(task: Task) -> Kit:
    """Reads `task.session.workspace`: load it with the task."""
    settings = conf()
    row: WorkspaceRow = task.session.workspace
    mode = mode_of(task.trigger, task.mode)
    return Kit(
        toolbox=_toolbox(),
        policy=Policy(mode=mode),
        workspace=Workspace(Path(row.root)),
        limits=limits_for(task),
        mode=mode,
        repeat_limit=settings.repeat_limit,
        system=lambda: system_prompt(
            now=timezone.localtime(), workspace=row.name, instructions=row.instructions
        ),
    )


@cache
def _toolbox() -> Toolbox:
    """One for the process: the tools hold no state, and its threads are worth keeping."""
    return Toolbox(builtin_tools(), threads=TOOL_THREADS)


def limits_for(task: Task) -> Limits:
    """The server's limits; what the task itself asked for can only be less."""
    settings = conf()
    own = task.limits
    return Limits(
        max_steps=int(min(settings.max_agent_steps, own.get("steps", math.inf))),
        max_seconds=min(settings.max_task_seconds, own.get("seconds", math.inf)),
        max_tokens=_whole(_least(settings.max_task_tokens, own.get("tokens"))),
        max_cost=_least(settings.max_task_cost, own.get("cost")),
    )


class Models:
    """Providers for runs, over one HTTP pool."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._quirks: dict[tuple[str, str], Quirks] = {}

    def prepare(self) -> None:
        """What takes long the first time (certificates); call it off the event loop."""
        prepare_tls()

    def provider(self, task: Task) -> Provider:
        """Raises NoModel."""
        settings = conf()
        if settings.llm_provider == "openai" and settings.llm_base_url:
            return self._openai(settings)
        if settings.llm_provider == "scripted" or settings.demo_model:
            return demo_provider()
        raise NoModel("No model is set up.")

    def _openai(self, settings: Conf) -> Provider:
        if self._client is None:
            self._client = make_client()
        # What a server refused once is not sent to it again, by any run of this process.
        learnt = self._quirks.setdefault((settings.llm_base_url, settings.llm_model), Quirks())
        return OpenAIProvider(
            self._client,
            base_url=settings.llm_base_url,
            model=settings.llm_model,
            api_key=settings.llm_api_key,
            stream=settings.llm_stream,
            quirks=learnt,
            connect_seconds=settings.llm_connect_seconds,
            first_byte_seconds=settings.llm_first_byte_seconds,
            idle_seconds=settings.llm_idle_seconds,
        )

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


def _least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
