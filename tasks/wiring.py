"""Rows and settings -> what a run needs: models, tools, policy, workspace, limits.

Built anew for every run, so a changed setting counts from the next run on. Only the HTTP pool to
the models is shared; it belongs to the loop of the process that runs tasks.

The model of a run, in order: the task's profile, its session's, the default profile, what
`PILOTHOUSE_LLM_*` name, the scripted demo. Only a profile has others that stand in for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import msgspec
from asgiref.sync import sync_to_async
from django.utils import timezone

from agent import memory, skills
from agent.asking import Retries
from agent.budget import Limits
from agent.judging import Judge
from agent.landing import in_thread
from agent.memory import Permits
from agent.policy import Mode, Policy, strictest
from agent.prompts import Background, system_prompt
from agent.providers import CONTEXT_TOKENS, Model
from agent.providers.check import Report, check
from agent.providers.client import Client, make_client, prepare_tls
from agent.providers.demo import demo_provider
from agent.providers.openai import OpenAIProvider
from agent.providers.quirks import Quirks
from agent.workspace import Workspace
from tasks import keeping, profiles, quorum, rules, toolboxes
from tasks.conf import Conf, conf
from tasks.models import ModelProfile, Task
from tasks.models import Workspace as WorkspaceRow
from tasks.writer import writer

UNATTENDED = frozenset({Task.Trigger.WEBHOOK, Task.Trigger.CRON})


class NoModel(Exception):
    """No model is configured, or the one that is cannot be asked."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint or (
            "Add a model profile in the admin, or set PILOTHOUSE_LLM_BASE_URL and "
            "PILOTHOUSE_LLM_MODEL (and PILOTHOUSE_LLM_API_KEY where the provider needs a key), or "
            "PILOTHOUSE_DEMO_MODEL=1 for the scripted demo."
        )


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What was known of a server before a run, and what is by now."""

    before: Quirks
    now: Quirks
    store: Callable[[Quirks, Quirks], None] = field(repr=False)
    """Merges both into what is stored."""

    async def keep(self) -> bool:
        """Whether there was anything to keep."""
        if self.now == self.before:
            return False
        await writer.run(partial(self.store, self.before, self.now))
        return True


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The models of a run: the first is asked, the others stand in for it."""

    models: tuple[Model, ...]
    limits: Mapping[str, float] = field(default_factory=dict)
    """What the first one's profile allows a task at most."""
    lessons: tuple[Lesson, ...] = ()

    @property
    def name(self) -> str:
        return self.models[0].provider.model


@dataclass(frozen=True, kw_only=True)
class Kit:
    """The collaborators of one run, besides its models."""

    judge: Judge
    limits: Limits
    mode: Mode
    repeat_limit: int
    retries: Retries
    budget_asks: bool
    system: Callable[[Background], str] = field(repr=False)

    @property
    def workspace(self) -> Workspace:
        return self.judge.workspace

    async def close(self) -> None:
        """For whoever ran with it: nothing that was started for it is left."""
        if self.judge.connections is not None:
            await self.judge.connections.close()

    async def background(self) -> Background:
        """What the prompt says of the workspace's files: nothing of what its rules do not permit to
        be read unasked. Where there is no such file nobody asks for rules."""
        told, its_own = await in_thread(_LOOKING, partial(_background, self.workspace))
        if not its_own:
            return told
        await self.judge.refresh()
        policy = self.judge.policy
        if not policy.rules:
            return told
        told, _ = await in_thread(_LOOKING, partial(_background, self.workspace, policy))
        return told


_LOOKING = ThreadPoolExecutor(4, thread_name_prefix="look")


def _background(workspace: Workspace, policy: Policy | None = None) -> tuple[Background, bool]:
    """What the prompt says, and whether any of it comes from the workspace. Reads files."""
    library = toolboxes.library()
    if library.server is None and not workspace.has_any(skills.FOLDER, memory.FOLDER):
        return _without_files(), False
    known, noted = library.skills(workspace), memory.remembered(workspace)
    if policy is not None:
        named, opened = permits(policy, "expand_skill"), permits(policy, "read_file")
        known = [
            each for each in known if not each.path or (named(each.path) and opened(each.path))
        ]
        noted = memory.remembered(workspace, opened)
    told = Background(memory=noted, skills=skills.catalogue(known))
    return told, bool(noted) or any(skill.path for skill in known)


@cache
def _without_files() -> Background:
    """What the prompt says where there is nothing but ours: that changes with the program only."""
    return Background(skills=skills.catalogue(skills.ours()))


def permits(policy: Policy, tool: str) -> Permits:
    """Whether the agent may use one of our tools on a path of the workspace unasked."""
    found = toolboxes.own_tools().get(tool)
    return partial(policy.permits, tool, found.capability if found else "")


def mode_of(trigger: str, *others: str) -> Mode:
    """The strictest of what the server says for this trigger and what others (workspace, session,
    request) ask for; empty: they say nothing."""
    server = conf().unattended_mode if trigger in UNATTENDED else conf().mode
    return strictest(*(cast(Mode, mode) for mode in (server, *others) if mode))


def kit_for(task: Task, choice: Choice | None = None) -> Kit:
    """Reads `task.session.workspace`: load it with the task. Asks the database where there are MCP
    servers: not for the event loop. Close it after a run."""
    settings = conf()
    row: WorkspaceRow = task.session.workspace
    mode = mode_of(task.trigger, row.mode, task.session.mode, task.mode)
    return Kit(
        judge=Judge(
            policy=Policy(mode=mode),
            toolbox=toolboxes.toolbox(row),
            workspace=Workspace(Path(row.root)),
            read_rules=rules.InForce(rules.places_of(task)),
            claim=rules.claim,
            always_asked=quorum.demanded,
            shelf=keeping.shelf_of(task.pk),
            connections=toolboxes.connections(Path(row.root)),
        ),
        limits=limits_for(task, {} if choice is None else choice.limits),
        mode=mode,
        repeat_limit=settings.repeat_limit,
        retries=Retries(attempts=settings.llm_attempts),
        budget_asks=settings.budget_asks,
        system=lambda background: system_prompt(
            now=timezone.localtime(),
            workspace=row.name,
            instructions=row.instructions,
            background=background,
        ),
    )


def limits_for(task: Task, of_model: Mapping[str, float]) -> Limits:
    """The server's limits; what the model's profile or the task itself says can only be less."""
    settings = conf()
    own = task.limits

    def least(name: str, server: float | None) -> float | None:
        return _least(server, of_model.get(name), own.get(name))

    return Limits(
        max_steps=int(least("steps", settings.max_agent_steps) or 1),
        max_seconds=least("seconds", settings.max_task_seconds) or 1,
        max_tokens=_whole(least("tokens", settings.max_task_tokens)),
        max_cost=least("cost", settings.max_task_cost),
    )


class Models:
    """The models of runs, over one HTTP pool."""

    def __init__(self) -> None:
        self._client: Client | None = None
        self._quirks: dict[tuple[str, ...], Quirks] = {}

    def prepare(self) -> None:
        """What takes long the first time (certificates); call it off the event loop."""
        prepare_tls()

    def choose(self, task: Task) -> Choice:
        """What a run of the task asks. Raises NoModel. Asks the database: not for the event loop."""
        return self.of_profile_or_settings(profiles.chosen(task))

    def of_profile_or_settings(self, profile: ModelProfile | None) -> Choice:
        if profile is not None:
            return self._of_profiles(profile)
        settings = conf()
        if settings.llm_provider == "openai" and settings.llm_base_url:
            model, lesson = self._of_settings(settings)
            return Choice(models=(model,), lessons=(lesson,))
        if settings.llm_provider == "scripted" or settings.demo_model:
            return Choice(models=(Model(provider=demo_provider()),))
        raise NoModel("No model is set up.")

    def _of_profiles(self, profile: ModelProfile) -> Choice:
        """A stand-in whose key is missing is left out; the first one's is needed."""
        models: list[Model] = []
        lessons: list[Lesson] = []
        for row in profiles.with_fallbacks(profile):
            try:
                model, lesson = self._of_profile(row)
            except profiles.KeyMissing as missing:
                if models:
                    continue
                hint = "Enter the key in the model's profile, or set the variable that it names."
                raise NoModel(str(missing), hint) from None
            models.append(model)
            lessons.append(lesson)
        return Choice(models=tuple(models), limits=profile.limits, lessons=tuple(lessons))

    async def aclose(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()

    def _of_profile(self, row: ModelProfile) -> tuple[Model, Lesson]:
        before = profiles.quirks_of(row)
        stored = msgspec.json.encode(row.quirks, order="sorted").decode()
        # Runs of one moment learn together; once the row says more, a new run begins there.
        live = self._quirks.setdefault((str(row.pk), row.base_url, row.model, stored), before)
        provider = self._openai(
            base_url=row.base_url,
            model=row.model,
            api_key=profiles.key_of(row),
            stream=row.stream,
            quirks=live,
            options=row.options,
        )
        model = Model(
            provider=provider,
            prices=profiles.prices_of(row),
            context_tokens=profiles.context_of(row),
        )
        return model, Lesson(
            before=profiles.quirks_of(row), now=live, store=partial(profiles.remember, row.pk)
        )

    def _of_settings(self, settings: Conf) -> tuple[Model, Lesson]:
        server = server_of_settings()
        before = profiles.quirks_of_server(server)
        stored = msgspec.json.encode(before).decode()
        live = self._quirks.setdefault((server, stored), before.evolve())
        provider = self._openai(
            base_url=settings.llm_base_url,
            model=settings.llm_model,
            api_key=settings.llm_api_key,
            stream=settings.llm_stream,
            quirks=live,
        )
        store = partial(profiles.remember_server, server)
        reads = settings.llm_context_tokens or CONTEXT_TOKENS
        model = Model(provider=provider, context_tokens=reads)
        return model, Lesson(before=before, now=live, store=store)

    def _openai(self, **fields: Any) -> OpenAIProvider:
        if self._client is None:
            self._client = make_client()
        settings = conf()
        return OpenAIProvider(
            self._client,
            connect_seconds=settings.llm_connect_seconds,
            first_byte_seconds=settings.llm_first_byte_seconds,
            idle_seconds=settings.llm_idle_seconds,
            **fields,
        )


def server_of_settings() -> str:
    """Under which key their server's quirks are kept."""
    return profiles.server_of(conf().llm_base_url, conf().llm_model)


async def try_out(profile: ModelProfile | None) -> Report:
    """Talk to the profile's model alone, not to its stand-ins, or to the settings' one; what its
    server teaches is kept. Raises NoModel."""
    models = Models()
    try:
        choice = await sync_to_async(models.of_profile_or_settings)(profile)
        report = await check(choice.models[0].provider)
        for lesson in choice.lessons[:1]:
            if await lesson.keep():
                report.note("quirks", True, f"learnt: {msgspec.json.encode(lesson.now).decode()}")
        return report
    finally:
        await models.aclose()


def in_force(session_model: ModelProfile | None = None) -> tuple[str, bool]:
    """Name of the model that a task of now would ask ("" for none), and whether it is the demo."""
    profile = session_model or profiles.default()
    settings = conf()
    if profile is not None:
        return profile.name, False
    if settings.llm_provider == "openai" and settings.llm_base_url:
        return settings.llm_model, False
    scripted = settings.llm_provider == "scripted" or settings.demo_model
    return ("demo" if scripted else ""), scripted


def _least(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
