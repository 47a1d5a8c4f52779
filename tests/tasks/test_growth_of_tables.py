"""No list, no page and no command reads more because tables have become fuller.

Counted, not timed: what the database reads for one request, with some rows and with many times as
many. The long form has a million events.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from agent.events import ModelCallStarted, TaskCompleted
from tasks import (
    access,
    approvals,
    commands,
    endings,
    events,
    schedules,
    standing,
    starting,
    watching,
    webhooks,
)
from tasks.admin import lists
from tasks.commands import TaskRequest
from tasks.errors import NotFound
from tasks.models import Session, Task, TaskEvent, WebhookDelivery
from tests.support.bulk import Warehouse
from tests.support.counting import Work, counted, scans
from tests.support.people import bearer, principal
from tests.support.rows import make_session, make_task, make_user

pytestmark = pytest.mark.django_db

API = (
    *("tasks?limit=30", "tasks?status=failed", "tasks?status=running", "approvals?limit=30"),
    *("approvals?status=pending", "sessions?limit=30", "sessions?archived=true"),
    *("sessions/running", "workspaces", "usage", "tokens"),
)
PAGES = ("/", "/inbox", "/settings")
FILTERS = {
    "task": (
        *("status__exact=failed", "trigger__exact=cron", "p=1", "created_at__year={year}"),
        *("created_at__year={year}&created_at__month={month}", "workspace__id__exact={desk}"),
        "workspace__id__exact={own}",
    ),
    "approval": ("status__exact=pending", "status__exact=approved", "kind__exact=question"),
    "session": ("hidden__exact=1", "archived__exact=1", "workspace__id__exact={own}"),
    "modelusage": ("model=small", "model=zebra", "day__year={year}&day__month={month}"),
    "auditentry": ("action=zebra", "object_type=zebra"),
}
PEOPLE = ("bob", "charlie")


@dataclass(frozen=True, kw_only=True)
class Scale:
    before: int
    """Sessions."""
    after: int
    tasks: int = 1
    """Of each session."""
    events: int = 2
    """Of each task."""

    honest: bool = False
    """Let PostgreSQL choose as it likes: small tables it reads whole, whatever indexes they have."""


SHORT = Scale(before=800, after=2_000)
LONG = Scale(before=1_000, after=20_000, tasks=2, events=25, honest=True)

Request = tuple[str, Callable[[], object]]


def requests(house: Warehouse) -> list[Request]:
    return [*api(house), *pages(house), *admin_lists(house), *commands_of(house)]


def api(house: Warehouse) -> list[Request]:
    found: list[Request] = []
    for name in PEOPLE:
        client = Client(headers=bearer(getattr(house, name)))
        found += [(f"{name}: {path}", partial(get, client, f"/api/{path}")) for path in API]
    one = (f"tasks/{house.task.pk}", f"tasks/{house.task.pk}/events")
    session = (f"sessions/{house.task.session_id}", f"sessions/{house.task.session_id}/events")
    client = Client(headers=bearer(house.charlie))
    return found + [(path, partial(get, client, f"/api/{path}")) for path in (*one, *session)]


def pages(house: Warehouse) -> list[Request]:
    found: list[Request] = []
    for name in PEOPLE:
        client = Client()
        client.force_login(getattr(house, name))
        found += [(f"{name}: {path}", partial(get, client, path)) for path in PAGES]
    return found


def admin_lists(house: Warehouse) -> list[Request]:
    client = Client()
    client.force_login(make_user(f"boss{uuid4()}", is_staff=True, is_superuser=True))
    day = house.start - timedelta(days=400)
    words = {"year": day.year, "month": day.month, "desk": house.desk.pk, "own": house.own.pk}
    found: list[Request] = []
    for model in admin.site._registry:
        meta = model._meta
        path = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
        for query in ("", *FILTERS.get(str(meta.model_name), ())):
            url = f"{path}?{query.format(**words)}" if query else path
            found.append((f"admin {meta.model_name}?{query}", partial(get, client, url)))
    for row in (house.task, house.task.session, house.desk, house.schedule, house.webhook):
        url = reverse(f"admin:tasks_{row._meta.model_name}_change", args=[row.pk])
        found.append((f"admin page of a {row._meta.model_name}", partial(get, client, url)))
    return found


def get(client: Client, url: str) -> None:
    response = client.get(url)
    assert response.status_code == 200, (url, response.status_code)
    if not response.streaming:
        assert response.content


def commands_of(house: Warehouse) -> list[Request]:
    """What the writer and the watcher do, as they do it."""
    alice = house.alice.pk
    request = partial(TaskRequest, goal="Compare", owner_id=alice, trigger="api")
    waiting = partial(watching.look, 10, [uuid4()], [str(house.task.pk)], [])

    sent = webhooks.Sent(headers={"authorization": f"Bearer {house.secret}"}, body=b"x")

    def deliver() -> None:
        webhooks._store(WebhookDelivery(webhook=house.webhook, size=1, outcome="refused"))

    def run() -> None:
        """A whole life, but for the model."""
        task_id = commands.create(request(workspace_id=house.desk.pk)).created.task_id
        task = starting._lock(task_id)
        assert starting.may_begin(task, "w") == "start"
        Task.objects.filter(pk=task_id).update(status=Task.Status.RUNNING)
        events.append(task_id, [ModelCallStarted(step=1, model="m", attempt=1)])
        endings.end(task_id, TaskCompleted())
        TaskEvent.objects.filter(task_id=task_id).delete()
        Task.objects.filter(pk=task_id).delete()

    return [
        ("command: a task's life", run),
        ("command: the watcher's look", lambda: waiting()),
        ("command: expire", approvals.expire_due),
        ("command: schedules", lambda: schedules.run_due(house.start)),
        ("a webhook's sender", lambda: webhooks._admitted(str(house.webhook.pk), sent)),
        ("a delivery that goes on", lambda: place_of(house)),
        ("command: a delivery", deliver),
        ("what runs", lambda: access.open_tasks(principal(house.alice))),
        ("standing", lambda: standing.of_session(house.task.session)),
    ]


def place_of(house: Warehouse) -> None:
    with pytest.raises(NotFound):
        webhooks._place(house.webhook, str(house.task.pk))


def cost(request: Callable[[], object]) -> Work:
    with transaction.atomic(), counted() as work:
        request()
    return work


def grown(before: Work, after: Work) -> bool:
    """B-trees become a level deeper: half as much again is not growth when there is many times as
    much. Some statements come by the clock: when a token was last used is noted every minute."""
    return after.statements > before.statements + 5 or after.read > before.read * 1.5 + 1_500


def check(scale: Scale) -> None:
    house = Warehouse(tasks=scale.tasks, events=scale.events)
    if connection.vendor == "postgresql" and not scale.honest:
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL random_page_cost = 0.2; SET LOCAL seq_page_cost = 1")
    house.grow(scale.before)
    asked = requests(house)
    for _, request in asked:
        request()  # what is looked up once per process is
    before = {name: cost(request) for name, request in asked}
    house.grow(scale.after - scale.before)
    after = {name: cost(request) for name, request in asked}
    complaints = [
        f"{name}: {work} -> {after[name]}"
        for name, work in before.items()
        if grown(work, after[name])
    ]
    texts = {
        re.sub(r"'[^']*'|\b\d+\b", "", text): text for work in after.values() for text in work.sql
    }
    complaints += [f"scan in {text}" for text in texts.values() if scans(text)]
    if complaints:
        pytest.fail("\n".join(complaints), pytrace=False)


@pytest.fixture(autouse=True)
def few_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The admin counts so far and no further; both scales are above it."""
    monkeypatch.setattr(lists, "MOST_COUNTED", 500)


def test_what_is_read_does_not_grow_with_the_tables() -> None:
    check(SHORT)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_is_read_does_not_grow_with_a_million_events() -> None:
    check(LONG)
    assert TaskEvent.objects.count() > 1_000_000


def test_a_page_of_a_long_session_reads_as_little_as_one_of_a_short_one() -> None:
    costs = []
    for length in (100, 2_000):
        session = make_session()
        Task.objects.bulk_create(
            [
                Task(
                    session=session,
                    owner=session.owner,
                    workspace=session.workspace,
                    goal="g",
                    status="completed",
                    trigger="api",
                    created_by=session.owner,
                    first_position=number,
                )
                for number in range(1, length + 1)
            ]
        )
        costs.append(turn(session))
    assert not grown(*costs), f"{costs[0]} -> {costs[1]}"


def turn(session: Session) -> Work:
    """A follow-up, from the request to its beginning."""
    request = TaskRequest(
        goal="And now?", owner_id=session.owner_id, trigger="api", session_id=session.pk
    )

    def ask() -> None:
        created = commands.create(request).created
        assert starting.may_begin(starting._lock(created.task_id), "w") == "start"
        standing.of_session(session)
        Task.objects.filter(pk=created.task_id).update(status=Task.Status.COMPLETED)

    return cost(ask)


def test_the_admin_says_when_it_stopped_counting() -> None:
    house = Warehouse()
    house.grow(lists.MOST_COUNTED + 5)
    client = Client()
    client.force_login(make_user("boss", is_staff=True, is_superuser=True))
    page = client.get(reverse("admin:tasks_task_changelist")).content.decode()
    assert "500 or more tasks" in " ".join(page.split())
    assert client.get(reverse("admin:tasks_task_changelist") + "?p=10").status_code == 200


def test_a_date_hierarchy_reaches_from_the_first_date_to_the_last() -> None:
    client = Client()
    client.force_login(make_user("boss", is_staff=True, is_superuser=True))
    session = make_session()
    for day in ("2023-12-31", "2024-03-01", "2024-05-31", "2025-02-03"):
        make_task(session, created_at=f"{day}T12:00:00Z")
    assert linked(client, "") == {("year", 2023), ("year", 2024), ("year", 2025)}
    months = {number for kind, number in linked(client, "created_at__year=2024") if kind == "month"}
    assert months == {3, 4, 5}
    days = linked(client, "created_at__year=2024&created_at__month=3")
    assert {number for kind, number in days if kind == "day"} == {1}


def linked(client: Client, query: str) -> set[tuple[str, int]]:
    page = client.get(f"{reverse('admin:tasks_task_changelist')}?{query}").content.decode()
    found = re.findall(r"created_at__(year|month|day)=(\d+)", page)
    return {(kind, int(number)) for kind, number in found}


def test_the_pages_of_a_list_are_whole_whoever_reads_it() -> None:
    """Bob sees what is in two workspaces: pages of three add up to everything, newest first."""
    house = Warehouse()
    house.grow(7)
    mine = house.bob.workspaces.get()
    for number in range(5):
        make_task(make_session(mine), created_at=house.start - timedelta(hours=7 * number))
    client = Client(headers=bearer(house.bob))
    whole = client.get("/api/tasks").json()["items"]
    assert len(whole) == 12
    assert [item["created_at"] for item in whole] == sorted(
        (item["created_at"] for item in whole), reverse=True
    )
    pieces: list[object] = []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get(f"/api/tasks?limit=3{cursor}").json()
        pieces += page["items"]
        cursor = page["next"] and f"&cursor={page['next']}"
    assert pieces == whole
