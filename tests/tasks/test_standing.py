"""What lists say of sessions, and what is found in them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agent.events import AssistantMessageAdded, TaskCompleted
from tasks import events, standing
from tasks.models import Approval, Session, Task
from tests.support.people import House, bearer, make_approval
from tests.support.rows import make_session, make_task, make_workspace

pytestmark = pytest.mark.django_db


def states(*statuses: str, pending: bool = False) -> tuple[str, str | None]:
    """Of a session with tasks of these statuses, oldest first."""
    session = make_session()
    tasks = [
        make_task(session, status=status, first_position=place)
        for place, status in enumerate(statuses, start=1)
    ]
    if pending:
        waiting = next(task for task in tasks if task.status == Task.Status.WAITING_APPROVAL)
        make_approval(waiting)
        make_approval(waiting, tool_call_id="call-2", status=Approval.Status.EXPIRED)
    found = standing.of_session(session)
    return found.state, None if found.task is None else found.task.status


@pytest.mark.parametrize(
    ("statuses", "pending", "state", "about"),
    [
        ((), False, "empty", None),
        (("queued",), False, "queued", "queued"),
        (("running", "queued"), False, "running", "running"),
        (("waiting_approval", "queued"), True, "needs_you", "waiting_approval"),
        (("waiting_approval",), False, "running", "waiting_approval"),
        (("failed", "completed"), False, "done", "completed"),
        (("completed", "failed"), False, "failed", "failed"),
        (("completed", "cancelled"), False, "stopped", "cancelled"),
        (("budget_exceeded",), False, "limit", "budget_exceeded"),
        (("failed", "running"), False, "running", "running"),
    ],
)
def test_a_session_stands_in_one_word(
    statuses: tuple[str, ...], pending: bool, state: str, about: str | None
) -> None:
    assert states(*statuses, pending=pending) == (state, about)


def test_a_list_says_where_each_session_stands(house: House, alice: Client) -> None:
    make_session(house.workspace, title="later")
    listed = {item["id"]: item for item in alice.get("/api/sessions").json()["items"]}
    item = listed[str(house.session.pk)]

    assert (item["state"], item["waiting"], item["workspace_name"]) == ("needs_you", 1, "desk")
    assert item["task"] == {
        "id": str(house.task.pk),
        "status": "waiting_approval",
        "trigger": "api",
        "steps": 0,
    }
    assert alice.get(f"/api/sessions/{house.session.pk}").json() == item


def queries_of_a_list(client: Client) -> int:
    with CaptureQueriesContext(
        connection,
    ) as seen:
        client.get("/api/sessions")
    return len(seen)


def test_a_long_list_costs_what_a_short_one_costs(house: House, alice: Client) -> None:
    alice.get("/api/sessions")
    short = queries_of_a_list(alice)
    for _ in range(30):
        session = make_session(house.workspace)
        make_task(session, status=Task.Status.COMPLETED)
        make_approval(make_task(session, status=Task.Status.WAITING_APPROVAL))
    assert queries_of_a_list(alice) == short


# ── search ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def stories(house: House) -> dict[str, Session]:
    titled = make_session(house.workspace, title="Deck lighting")
    asked = make_session(house.workspace)
    make_task(asked, goal="Compare the Nordlicht quotes", status=Task.Status.COMPLETED)
    answered = make_session(house.workspace)
    make_task(answered, final_answer="报价 is 100% right", status=Task.Status.COMPLETED)
    foreign = make_session(make_workspace(house.charlie), title="Deck, Nordlicht, 报价")
    return {"titled": titled, "asked": asked, "answered": answered, "foreign": foreign}


@pytest.mark.parametrize(
    ("q", "found"),
    [
        ("LIGHTING", {"titled"}),
        ("nordlicht", {"asked"}),
        ("报价", {"answered"}),
        ("100%", {"answered"}),
        ("%", {"answered"}),
        ("_", set()),
        ("nothing like it", set()),
        ("' OR 1=1 --", set()),
    ],
)
def test_search_looks_into_titles_goals_and_answers_of_what_one_may_see(
    alice: Client, stories: dict[str, Session], q: str, found: set[str]
) -> None:
    items = alice.get("/api/sessions", {"q": q}).json()["items"]
    names = {str(session.pk): name for name, session in stories.items()}
    assert {names.get(item["id"]) for item in items} == found


# ── the inbox ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("who", "may"), [("alice", True), ("dora", True), ("vera", False)])
def test_the_inbox_says_where_a_question_comes_from_and_who_may_answer(
    house: House, who: str, may: bool
) -> None:
    Session.objects.filter(pk=house.session.pk).update(title="Quotes")
    client = Client(headers=bearer(getattr(house, who)))
    [item] = client.get("/api/approvals?status=pending").json()["items"]
    assert (item["session_title"], item["workspace_name"]) == ("Quotes", "desk")
    assert item["can_decide"] is may


@pytest.mark.parametrize(
    ("who", "allowed"),
    [
        ("alice", ["once", "task", "session", "always"]),
        ("dora", ["once", "task", "session", "always"]),
        ("bob", ["once", "task", "session"]),
        ("vera", []),
    ],
)
def test_whoever_only_owns_the_session_is_not_offered_always(
    house: House, who: str, allowed: list[str]
) -> None:
    scopes = ["once", "task", "session", "always"]
    Session.objects.filter(pk=house.session.pk).update(owner=house.bob)
    Approval.objects.filter(pk=house.approval.pk).update(owner=house.bob, scopes=scopes)
    client = Client(headers=bearer(getattr(house, who)))
    [item] = client.get("/api/approvals").json()["items"]
    for card in (item, client.get(f"/api/approvals/{house.approval.pk}").json()):
        assert (card["scopes"], card["allowed_scopes"]) == (scopes, allowed)
        assert card["can_approve"] is bool(allowed)


# ── history as HTML ───────────────────────────────────────────────────────────────────────────


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("where", ["tasks", "sessions"])
def test_history_can_come_as_html(house: House, alice: Client, where: str) -> None:
    with transaction.atomic():
        message = AssistantMessageAdded(step=1, block_id="a", text="**bold** <b>")
        events.append(house.task.pk, [message, TaskCompleted()])
    row = house.task if where == "tasks" else house.session

    def payload(query: str = "") -> dict[str, Any]:
        answer = alice.get(f"/api/{where}/{row.pk}/events{query}")
        return dict(answer.json()["items"][0]["payload"])

    assert "html" not in payload()
    assert payload("?render=html") == payload() | {
        "html": "<p><strong>bold</strong> &lt;b&gt;</p>\n"
    }
    assert alice.get(f"/api/{where}/{row.pk}/events?render=pdf").status_code == 400
