"""What models used and cost, and the limits on it: of a task, a session, a person and a day."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agent.messages import Usage
from agent.providers import Model, Prices
from agent.providers.scripted import ScriptedCall, ScriptedProvider, Turn
from tasks import usage, wiring
from tasks.models import ModelUsage, Task
from tests.support.people import bearer
from tests.support.rows import make_session, make_task, make_user
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

SPENT = Usage(input_tokens=1000, output_tokens=100, cached_tokens=600, reasoning_tokens=40)
DONE = Turn(text="Done.", usage=SPENT)
READ = Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "a.txt"}),), usage=SPENT)
OTHER = Turn(calls=(ScriptedCall(name="read_file", arguments={"path": "b.txt"}),), usage=SPENT)
PRICES = Prices(input=10, cached=1, output=100)
COST = (400 * 10 + 600 * 1 + 100 * 100) / 1e6


class PricedModels(wiring.Models):
    """A script whose model has prices."""

    def __init__(self, *turns: Turn, prices: Prices | None = PRICES) -> None:
        super().__init__()
        self.model = Model(provider=ScriptedProvider(turns), prices=prices)

    def choose(self, task: Task) -> wiring.Choice:
        return wiring.Choice(models=(self.model,))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


def limit(settings: Any, **fields: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **fields)


async def payloads(house: House, task_id: Any, kind: str) -> list[dict[str, Any]]:
    return [json.loads(row.payload) for row in await house.log(task_id) if row.type == kind]


# ── counting ──────────────────────────────────────────────────────────────────────────────────


async def test_every_call_has_its_cost_and_all_sums_agree(house: House) -> None:
    async with house.runner(models=PricedModels(READ, DONE)):
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
    calls = await payloads(house, task.pk, "model_call_finished")
    assert [call["cost"] for call in calls] == [pytest.approx(COST)] * 2
    assert float(task.cost or 0) == pytest.approx(2 * COST)
    row = await ModelUsage.objects.aget()
    assert (row.task_id, row.session_id, row.user_id) == (task.pk, task.session_id, house.alice.pk)
    assert (row.calls, row.input_tokens, row.cached_tokens) == (2, 2000, 1200)
    sums = await sync_to_async(usage.total)(usage.rows())
    assert sums.tokens == 2 * 500
    assert sums.cost == pytest.approx(2 * COST)
    assert (sums.complete, sums.estimated) == (True, False)
    assert sums.seconds > 0


async def test_without_a_price_there_is_no_cost_and_estimates_are_marked(house: House) -> None:
    async with house.runner(models=PricedModels(Turn(text="Done."), prices=None)):
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
    assert task.cost is None
    sums = await sync_to_async(usage.total)(usage.rows())
    assert (sums.cost, sums.complete, sums.estimated) == (None, False, True)


def make_rows(house: House) -> tuple[Task, Task]:
    """Alice's yesterday and today, Bob's today."""
    session = make_session(house.workspace, title="Quotes")
    today = timezone.localdate()
    mine = make_task(session)
    other = make_task(session, created_by=make_user("bob"))
    for task, day in ((mine, today - timedelta(days=1)), (mine, today), (other, today)):
        ModelUsage.objects.create(
            task=task,
            session=session,
            user=task.created_by,
            day=day,
            model="m",
            calls=1,
            input_tokens=10,
            output_tokens=5,
            cost="0.5",
            priced_calls=1,
        )
    return mine, other


def test_usage_by_day_session_and_user_is_one_s_own(house: House) -> None:
    mine, _ = make_rows(house)
    alice = Client(headers=bearer(house.alice))
    days = alice.get("/api/usage").json()
    assert [item["tokens"] for item in days["items"]] == [15, 15]
    assert days["items"][0]["key"] == str(timezone.localdate())
    assert (days["total"]["cost"], days["currency"]) == (1.0, "USD")
    sessions = alice.get("/api/usage?by=session").json()["items"]
    assert [(item["key"], item["name"]) for item in sessions] == [(str(mine.session_id), "Quotes")]
    users = alice.get("/api/usage?by=user").json()["items"]
    assert [item["name"] for item in users] == ["alice"]
    since = timezone.localdate()
    assert alice.get(f"/api/usage?since={since}").json()["total"]["calls"] == 1


def test_staff_see_everybody_s_usage(house: House) -> None:
    make_rows(house)
    root = make_user("root", is_staff=True)
    users = Client(headers=bearer(root)).get("/api/usage?by=user").json()["items"]
    assert {item["name"]: item["calls"] for item in users} == {"alice": 2, "bob": 1}


@pytest.mark.parametrize("query", ["by=week", "since=soon", "until=0001-01-01"])
def test_nonsense_is_refused(house: House, query: str) -> None:
    response = Client(headers=bearer(house.alice)).get(f"/api/usage?{query}")
    assert response.status_code == 400


def test_the_admin_shows_rows_and_sums(house: House) -> None:
    make_rows(house)
    root: User = make_user("root", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(root)
    shown = client.get(reverse("admin:tasks_modelusage_changelist")).content.decode()
    assert 'id="usage-sums"' in shown
    assert "<td>1.5000</td>" in shown


# ── limits ────────────────────────────────────────────────────────────────────────────────────


async def test_cached_input_is_not_fresh_work(house: House, settings: Any) -> None:
    limit(settings, max_task_tokens=1001)  # 2,200 tokens pass in two calls; 1,000 of them fresh
    async with house.runner(models=PricedModels(READ, OTHER, DONE)):
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
    assert task.steps == 3


@pytest.mark.parametrize("scope", ["session", "user", "day"])
async def test_a_wider_limit_ends_the_next_task(house: House, settings: Any, scope: str) -> None:
    limit(settings, **{f"max_{scope}_tokens": 1100})
    async with house.runner(models=PricedModels(DONE, READ, DONE)):
        first = await house.ask()
        await house.until(first.task_id, "completed")
        second = await house.ask(session_id=first.session_id)
        await house.until(second.task_id, "completed")
        third = await house.ask(session_id=first.session_id)
        task = await house.until(third.task_id, "budget_exceeded")
    [over] = await payloads(house, task.pk, "budget_exceeded")
    assert (over["scope"], over["which"], over["used"]) == (scope, "tokens", 1500)
    assert task.error is not None
    assert "1500 of 1100 tokens" in task.error["message"]


async def test_another_session_has_a_limit_of_its_own(house: House, settings: Any) -> None:
    limit(settings, max_session_cost=COST)
    async with house.runner(models=PricedModels(DONE, DONE)):
        for _ in range(2):
            created = await house.ask()
            await house.until(created.task_id, "completed")


async def test_near_a_limit_people_are_told_once(house: House, settings: Any) -> None:
    limit(settings, max_session_tokens=1100, max_agent_steps=50)
    async with house.runner(models=PricedModels(READ, OTHER, DONE)):
        created = await house.ask()
        await house.until(created.task_id, "completed")
    [warning] = await payloads(house, created.task_id, "budget_warning")
    assert (warning["scope"], warning["which"], warning["used"]) == ("session", "tokens", 1000)


# ── going on with as much again ───────────────────────────────────────────────────────────────


def waiting_after(steps: int) -> Callable[[Task], bool]:
    return lambda task: task.status == "waiting_approval" and task.steps == steps


async def test_a_person_may_go_on_with_as_much_again(house: House, settings: Any) -> None:
    limit(settings, max_agent_steps=1, budget_asks=True)
    async with house.runner(models=PricedModels(READ, OTHER, DONE)):
        created = await house.ask()
        for used in (1, 2):
            await house.until(created.task_id, waiting_after(used))
            approval = await house.pending(created.task_id)
            assert (approval.kind, approval.arguments["used"]) == ("limit", used)
            assert "Go on with 1 more?" in approval.reason
            await house.reply(approval.pk)
        task = await house.until(created.task_id, "completed")
    assert task.steps == 3
    await house.check(task.pk)


@pytest.mark.parametrize("how", ["reject", "expire"])
async def test_no_answer_and_no_end_the_task_at_its_limit(
    house: House, settings: Any, how: str
) -> None:
    limit(settings, max_agent_steps=1, budget_asks=True)
    async with house.runner(models=PricedModels(READ)) as runner:
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        approval = await house.pending(created.task_id)
        if how == "reject":
            await house.reply(approval.pk, "reject")
        else:
            approval.expires_at = timezone.now() - timedelta(seconds=1)
            await approval.asave()
            await runner._expire()
        task = await house.until(created.task_id, "budget_exceeded")
    [over] = await payloads(house, task.pk, "budget_exceeded")
    assert (over["scope"], over["which"], over["used"], over["limit"]) == ("task", "steps", 1, 1)
    await house.check(task.pk)


async def test_a_question_of_time_keeps_the_history_whole(house: House, settings: Any) -> None:
    limit(settings, max_task_seconds=0.3, budget_asks=True)
    slow = Turn(text="Let me think about this for a while.", delay=0.02, piece=1)
    async with house.runner(models=PricedModels(slow, DONE)):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        await house.check(created.task_id)
        await house.reply((await house.pending(created.task_id)).pk)
        task = await house.until(created.task_id, "completed")
    assert task.final_answer == "Done."
    await house.check(task.pk)


@pytest.mark.parametrize(("scope", "asks"), [("session", True), ("user", False), ("day", False)])
async def test_only_a_task_s_and_a_session_s_limit_are_asked_about(
    house: House, settings: Any, scope: str, asks: bool
) -> None:
    limit(settings, budget_asks=True, **{f"max_{scope}_tokens": 500})
    async with house.runner(models=PricedModels(READ, DONE)):
        created = await house.ask()
        wanted = "waiting_approval" if asks else "budget_exceeded"
        await house.until(created.task_id, wanted)
        if asks:
            await house.reply((await house.pending(created.task_id)).pk)
            await house.until(created.task_id, "completed")


async def test_where_nobody_may_be_asked_the_limit_ends_the_task(
    house: House, settings: Any
) -> None:
    limit(settings, max_agent_steps=1, budget_asks=True, mode="deny")
    async with house.runner(models=PricedModels(READ)):
        created = await house.ask()
        await house.until(created.task_id, "budget_exceeded")
