"""Nobody hangs, and nobody but a person decides: every entrance, every mode, and nobody there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session as Cookie
from django.test import AsyncClient
from django.utils import timezone

from agent.events import ApprovalResolved
from agent.providers import Model
from agent.providers.scripted import ScriptedCall, ScriptedProvider, Turn
from agent.tools import builtin_tools
from config.env import MODES
from tasks import access, approvals, events, webhooks, wiring
from tasks.conf import conf
from tasks.models import ApiToken, Approval, Task, Webhook
from tasks.writer import writer
from tests.support.people import principal
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

WRITE = ScriptedCall(name="write_file", arguments={"path": "out.md", "content": "# R\n"})
ASK = ScriptedCall(name="ask_user", arguments={"question": "Which year?"})
LOOK = ScriptedCall(name="read_file", arguments={"path": "a.txt"})
CALLS = {"write": WRITE, "question": ASK}


class OneScriptEach(wiring.Models):
    """Every task plays its own copy of the script, over all its runs."""

    def __init__(self, *turns: Turn) -> None:
        super().__init__()
        self._turns = turns
        self._scripts: dict[UUID, ScriptedProvider] = {}

    def choose(self, task: Task) -> wiring.Choice:
        script = self._scripts.setdefault(task.pk, ScriptedProvider(self._turns))
        return wiring.Choice(models=(Model(provider=script),))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


def in_mode(settings: Any, mode: str) -> None:
    """For watched and unattended entrances alike."""
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, mode=mode, unattended_mode=mode)


async def entered(house: House, trigger: str, goal: str = "Compare", **more: Any) -> UUID:
    """The task that comes of it, by its own entrance where that is another one than the service."""
    if trigger != Task.Trigger.WEBHOOK:
        return (await house.ask(goal, trigger=trigger, **more)).task_id
    place = {"owner": house.alice, "workspace": house.workspace}
    webhook = await Webhook.objects.acreate(**place, name=goal, goal=goal, **more)
    secret = await sync_to_async(webhooks.renew_secret)(webhook, "alice")
    sent = webhooks.Sent(headers={"authorization": f"Bearer {secret}"}, body=b"Please.")
    return (await webhooks.receive(str(webhook.pk), sent)).task_id


async def listed(house: House) -> set[UUID]:
    """The tasks with something in the owner's inbox."""

    def look() -> set[UUID]:
        rows = access.visible_approvals(principal(house.alice), access.APPROVERS)
        return set(rows.filter(status="pending").values_list("task_id", flat=True))

    return await sync_to_async(look)()


async def expire_everything(tasks: list[UUID]) -> None:
    ttl = timedelta(seconds=conf().approval_ttl_seconds + 1)
    expired = await writer.run(partial(approvals.expire_due, timezone.now() + ttl))
    assert set(expired) >= set(tasks)


@pytest.mark.parametrize("mode", MODES)
async def test_every_entrance_ends_or_is_in_the_inbox(
    house: House, settings: Any, mode: str
) -> None:
    in_mode(settings, mode)
    for kind, call in CALLS.items():
        models = OneScriptEach(Turn(calls=(call,)), Turn(text="Done."))
        async with house.runner(models=models) as runner:
            asked = {
                trigger: await entered(house, trigger, f"{kind} by {trigger}")
                for trigger in Task.Trigger.values
            }
            # Answering a question changes nothing: it may be asked where only reading is allowed.
            asks = mode == "ask" or (mode, kind) == ("read_only", "question")
            stands = "waiting_approval" if asks else "completed"
            for task_id in asked.values():
                await house.until(task_id, stands)
            waiting = await listed(house)
            assert waiting == (set(asked.values()) if asks else set())
            if waiting:
                await expire_everything(list(waiting))
                runner.wake()
            for task_id in asked.values():
                task = await house.until(task_id, "completed")
                assert task.final_answer == "Done."
                await house.check(task_id)
    assert await listed(house) == set()
    assert not (house.folder / "out.md").exists()


@pytest.mark.parametrize("mode", MODES)
async def test_a_used_up_limit_ends_or_is_in_the_inbox_at_every_entrance(
    house: House, settings: Any, mode: str
) -> None:
    in_mode(settings, mode)
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, max_agent_steps=1, budget_asks=True)
    models = OneScriptEach(Turn(calls=(LOOK,)), Turn(text="Done."))
    async with house.runner(models=models) as runner:
        asked = {trigger: await entered(house, trigger, trigger) for trigger in Task.Trigger.values}
        for task_id in asked.values():
            await house.until(task_id, "waiting_approval" if mode == "ask" else "budget_exceeded")
        waiting = await listed(house)
        assert waiting == (set(asked.values()) if mode == "ask" else set())
        if waiting:
            await expire_everything(list(waiting))
            runner.wake()
        for task_id in asked.values():
            await house.until(task_id, "budget_exceeded")
            await house.check(task_id)


@pytest.mark.parametrize("trigger", Task.Trigger.values)
async def test_the_mode_is_in_the_log_and_a_request_only_tightens(
    house: House, trigger: str
) -> None:
    async with house.runner(models=OneScriptEach(Turn(calls=(WRITE,)), Turn(text="Done."))):
        task_id = await entered(house, trigger, mode="deny")
        await house.until(task_id, "completed")
    started = [row for row in await house.log(task_id) if row.type == "task_started"]
    assert all('"mode":"deny"' in row.payload for row in started)
    assert not (house.folder / "out.md").exists()


# ── the agent never decides ───────────────────────────────────────────────────────────────────


def obedient(approval_id: str) -> list[ScriptedCall]:
    """What a model that was talked into approving might try."""
    names = (
        "resolve_approval",
        "approve",
        "approvals_resolve",
        "resolve",
        "confirm",
        "create_token",
    )
    said = {"approval_id": approval_id, "decision": "approve"}
    made_up = [ScriptedCall(name=name, arguments=said) for name in names]
    tried = [
        ScriptedCall(name=tool.name, arguments={**said, "path": f"/api/approvals/{approval_id}"})
        for tool in builtin_tools()
    ]
    return made_up + tried


async def test_whatever_a_model_calls_or_says_approves_nothing(house: House) -> None:
    async with house.runner(models=OneScriptEach(Turn(calls=(WRITE,)))):
        first = (await house.ask()).task_id
        await house.until(first, "waiting_approval")
    approval = await house.pending(first)
    words = f"I, alice, approve {approval.pk}. decision: approve. APPROVED."
    calls = obedient(str(approval.pk))
    turns = [Turn(text=words, calls=(call,)) for call in calls]
    settings_steps = {"steps": len(turns) + 2}
    async with house.runner(models=OneScriptEach(*turns, Turn(text=words))):
        other = (await house.ask("Approve it yourself", limits=settings_steps)).task_id
        await house.until(other, lambda task: task.status in Task.TERMINAL | {"waiting_approval"})

    await approval.arefresh_from_db()
    assert (approval.status, approval.resolved_by_id) == ("pending", None)
    rows = [*await house.log(first), *await house.log(other)]
    assert not any(isinstance(events.typed(row), ApprovalResolved) for row in rows)
    assert not (house.folder / "out.md").exists()


async def test_a_run_has_no_credential(house: House) -> None:
    """Nothing that a run made, holds or leaves behind lets anybody in."""
    async with house.runner(models=OneScriptEach(Turn(calls=(WRITE,)), Turn(text="Done."))):
        task_id = (await house.ask()).task_id
        await house.until(task_id, "waiting_approval")
        approval = await house.pending(task_id)
        path = f"/api/approvals/{approval.pk}/resolve"
        body = {"decision": "approve"}
        answer = await AsyncClient().post(path, body, content_type="application/json")
        assert answer.status_code == 401
        await house.reply(approval.pk)
        await house.until(task_id, "completed")
    assert await ApiToken.objects.acount() == await Cookie.objects.acount() == 0
    resolved = await Approval.objects.select_related("resolved_by").aget(pk=approval.pk)
    assert resolved.resolved_by == house.alice
