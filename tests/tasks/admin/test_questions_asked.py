"""How much the admin asks the database does not grow with what it shows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agent import events as ev
from tasks import access
from tasks.models import (
    ApiToken,
    Approval,
    Artifact,
    AuditEntry,
    Schedule,
    Session,
    Task,
    Webhook,
    Workspace,
)
from tests.support.admin import a_story, append, listing, text, url
from tests.support.people import make_approval
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db


def queries(client: Client, address: str, **options: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address, **options).status_code == 200
    return [query["sql"] for query in captured]


def many(count: int) -> Task:
    """A house with `count` tasks, approvals and artifacts, and one task with `count` events."""
    session = make_session()
    tasks = [make_task(session, goal=f"task {number}") for number in range(count)]
    for number, task in enumerate(tasks):
        make_approval(task, tool_call_id=f"c{number}")
        Artifact.objects.create(task=task, path="a", size=1, sha256="0", media_type="text/plain")
        owner = make_user()
        workspace = make_workspace(owner)
        Schedule.objects.create(
            name="s", owner=owner, workspace=workspace, cron="0 7 * * *", goal="g"
        )
        Webhook.objects.create(name="w", owner=owner, workspace=workspace, goal="g")
        make_session(workspace)
        access.issue_token(owner, "t")
    a_story(tasks[0])
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    append(tasks[0], *[warning] * count)
    tasks[0].refresh_from_db()
    return tasks[0]


LISTED = (*(Task, Approval, Session, Artifact, Workspace, Schedule, Webhook, ApiToken, AuditEntry),)


def test_lists_ask_as_many_questions_for_many_rows_as_for_few(admin):
    many(2)
    few = {model: len(queries(admin, listing(model))) for model in LISTED}
    many(20)
    for model in LISTED:
        asked = queries(admin, listing(model))
        assert len(asked) <= few[model], model
        assert len(asked) <= 16, model


def test_no_list_touches_the_event_table(admin):
    many(3)
    for model in LISTED:
        for address in (listing(model), listing(model) + "?q=task"):
            assert not [sql for sql in queries(admin, address) if "tasks_taskevent" in sql]


def test_the_page_of_a_long_log_asks_as_little_as_that_of_a_short_one(admin):
    long = many(3)
    short = make_task(long.session)
    a_story(short)
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    for _ in range(3):
        append(long, *[warning] * 2000)
    asked, few = queries(admin, url(long)), queries(admin, url(short))
    assert len(asked) <= len(few) + 1  # and a look back for the names of its calls
    of_events = [sql for sql in asked if "tasks_taskevent" in sql]
    assert len(of_events) <= 2
    assert not [sql for sql in of_events if "COUNT" in sql]


def test_searching_for_an_id_finds_one_row(admin, house):
    page = text(admin.get(listing(Task), {"q": str(house.task.pk)}))
    assert "1 result" in page
    assert "0 results" in text(admin.get(listing(Task), {"q": str(house.approval.pk)}))
    assert admin.get(listing(Task), {"created_at__year": "2026"}).status_code == 200
    old = timezone.now() - timedelta(days=400)
    Task.objects.filter(pk=house.task.pk).update(created_at=old)
    assert str(old.year) in text(admin.get(listing(Task)))


@pytest.mark.long
def test_a_hundred_thousand_events_cost_no_more_questions(admin):
    task = make_task()
    a_story(task)
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    for _ in range(50):
        append(task, *[warning] * 2000)
    for address in (url(task), f"{url(task)}?before=50000", f"{url(task)}?show=decisions"):
        of_events = [sql for sql in queries(admin, address) if "tasks_taskevent" in sql]
        assert 1 <= len(of_events) <= 2
        assert not [sql for sql in of_events if "COUNT" in sql]
    for model in LISTED:
        assert not [sql for sql in queries(admin, listing(model)) if "tasks_taskevent" in sql]
    page = text(admin.post(url(task, "check"), follow=True))
    assert "Chain whole: 100025 of 100025 events" in page
