"""Far more asked for than can be worked on: it queues, in order, and nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction
from django.test import AsyncClient, Client

from agent.providers.scripted import Turn
from tasks import commands, standing, watching
from tasks.commands import TaskRequest
from tasks.models import Task, TaskEvent
from tests.support.bulk import analyse
from tests.support.counting import Work, counted
from tests.support.people import bearer
from tests.support.rows import make_session, make_task, make_user
from tests.support.runs import House, make_house

AT_ONCE = 3


@pytest.fixture
def house(tmp_path: Path, settings: Any) -> House:
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE, max_active_runs=AT_ONCE, max_queued_per_user=10 * AT_ONCE
    )
    return make_house(tmp_path / "desk")


async def overload(house: House, settings: Any, tasks: int) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, max_queued_per_user=tasks)
    asked = [await house.ask(f"Goal {number}") for number in range(tasks)]
    busiest = 0
    async with house.runner(*[Turn(text="Done.")] * tasks) as running:
        for created in asked:
            task = await house.until(created.task_id, "completed", 60)
            busiest = max(busiest, running.active)
            assert task.run == 1
    assert busiest <= AT_ONCE
    begun = TaskEvent.objects.filter(type="task_started").order_by("pk")
    order = [row.task_id async for row in begun]
    assert Counter(order) == Counter(created.task_id for created in asked)
    places = {created.task_id: number for number, created in enumerate(asked)}
    overtaken = [abs(places[task_id] - number) for number, task_id in enumerate(order)]
    assert max(overtaken) < AT_ONCE  # those that are worked on together may begin in any order


@pytest.mark.django_db(transaction=True)
async def test_ten_times_what_fits_queues_and_is_done_once_in_order(
    house: House, settings: Any
) -> None:
    await overload(house, settings, 10 * AT_ONCE)


@pytest.mark.long
@pytest.mark.django_db(transaction=True)
async def test_hundreds_of_times_what_fits_queues_and_is_done_once(
    house: House, settings: Any
) -> None:
    await overload(house, settings, 300 * AT_ONCE)


@pytest.mark.django_db(transaction=True)
async def test_a_full_queue_is_429_and_says_when_to_come_back(house: House) -> None:
    header = await sync_to_async(bearer)(house.alice)
    client = AsyncClient()
    goal = {"goal": "g", "workspace_id": str(house.workspace.pk)}

    async def post() -> Any:
        return await client.post(
            "/api/tasks", goal, content_type="application/json", headers=header
        )

    answers = [await post() for _ in range(10 * AT_ONCE)]
    assert {answer.status_code for answer in answers} == {202}
    refused = await post()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused["Retry-After"]) > 0
    assert await Task.objects.acount() == 10 * AT_ONCE
    listed = (await client.get("/api/tasks", headers=header)).json()["items"]
    assert [item["queue_position"] for item in listed] == [*range(10 * AT_ONCE, 0, -1)]
    third = await client.get(f"/api/tasks/{answers[2].json()['id']}", headers=header)
    assert third.json()["queue_position"] == 3


@pytest.mark.django_db
def test_a_place_in_line_counts_everybodys_tasks_and_only_those_that_wait(house: House) -> None:
    session = make_session(house.workspace)
    ours = [make_task(session, first_position=number) for number in range(3)]
    theirs = make_task()
    last = make_task(session, first_position=9)
    make_task(status=Task.Status.RUNNING)
    assert standing.places([ours[2], last]) == {
        **{task.pk: place for place, task in enumerate(ours, start=1)},
        theirs.pk: 4,
        last.pk: 5,
    }
    running = Client(headers=bearer(house.alice))
    Task.objects.filter(pk=ours[0].pk).update(status=Task.Status.RUNNING)
    assert running.get(f"/api/tasks/{ours[0].pk}").json()["queue_position"] is None
    assert running.get(f"/api/tasks/{ours[1].pk}").json()["queue_position"] == 1


@pytest.mark.django_db
def test_creating_and_looking_cost_the_same_behind_a_long_queue(house: House) -> None:
    few = at_the_end_of_a_queue(house, 50)
    many = at_the_end_of_a_queue(house, 2_000)
    for name, work in many.items():
        assert work.statements == few[name].statements
        assert work.read <= few[name].read * 1.5 + 1_500, (name, str(few[name]), str(work))


def at_the_end_of_a_queue(house: House, length: int) -> dict[str, Work]:
    """What it costs to create a task, and to look for the next ones, with so many before it."""
    other = make_user()
    waiting = [make_session(house.workspace) for _ in range(length)]
    Task.objects.bulk_create(
        [
            Task(
                session=session,
                owner=house.alice,
                workspace=house.workspace,
                goal="g",
                trigger="api",
                created_by=other,
                first_position=1,
            )
            for session in waiting
        ]
    )
    analyse()
    request = TaskRequest(
        goal="g", owner_id=house.alice.pk, trigger="api", workspace_id=house.workspace.pk
    )
    with transaction.atomic(), counted() as create:
        commands.create(request)
    with counted() as look:
        assert len(watching.look(AT_ONCE, [], [], []).runnable) == AT_ONCE
    return {"create": create, "look": look}
