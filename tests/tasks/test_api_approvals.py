"""Approvals over HTTP: what waits, and that it is decided once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient, Client
from django.utils import timezone

from tasks import approvals
from tasks.events import FenceLost
from tasks.models import Approval, Schedule, TaskEvent, Webhook
from tasks.writer import writer
from tests.support.api import code, post, resolve
from tests.support.people import House, bearer, let_decide_everywhere, make_approval
from tests.support.questions import question
from tests.support.rows import make_session, make_task

pytestmark = [
    pytest.mark.django_db(transaction=True),  # the writer has a connection of its own
    pytest.mark.usefixtures("seen"),
]


# ── the inbox ─────────────────────────────────────────────────────────────────────────────────


def test_card_has_what_a_person_needs_to_decide(alice: Client, house: House) -> None:
    card = alice.get(f"/api/approvals/{house.approval.id}").json()

    assert card["task_id"] == str(house.task.id)
    assert card["session_id"] == str(house.session.id)
    assert (card["kind"], card["name"], card["capability"]) == ("call", "write_file", "file:write")
    assert card["arguments"] == {"path": "a.txt", "content": "hello"}
    assert "+hello" in card["diff"]
    assert (card["status"], card["resolved_by"], card["replaced_by"]) == ("pending", None, None)
    assert card["expires_at"].endswith("Z")


def test_inbox_is_filtered(alice: Client, house: House) -> None:
    other = make_task(house.session)
    done = make_approval(
        other, status="rejected", resolved_by=house.dora, resolved_at=timezone.now()
    )

    def ids(query: str) -> list[str]:
        return [item["id"] for item in alice.get(f"/api/approvals{query}").json()["items"]]

    assert ids("") == [str(done.id), str(house.approval.id)]
    assert ids("?status=pending") == [str(house.approval.id)]
    assert ids(f"?task_id={other.id}") == [str(done.id)]
    assert alice.get(f"/api/approvals/{done.id}").json()["resolved_by"] == "dora"


def test_what_one_reply_asks_stands_in_its_order_on_every_list(
    alice: Client, house: House, admin_client: Client
) -> None:
    Approval.objects.all().delete()
    task = make_task(house.session, status="running", run=1)
    paths = [f"part-{number}.txt" for number in range(8)]
    questions = [
        question(tool_call_id=path, arguments={"path": path, "content": "x"}) for path in paths
    ]
    writer.run_sync(partial(approvals.ask, task.id, 1, questions))

    first = alice.get("/api/approvals?limit=5").json()
    rest = alice.get(f"/api/approvals?limit=5&cursor={first['next']}").json()
    listed = [item["arguments"]["path"] for item in first["items"] + rest["items"]]
    page = admin_client.get("/admin/tasks/approval/").content.decode()
    assert listed == paths
    assert re.findall(r"<code>(part-\d\.txt)</code>", page) == paths


def test_a_run_that_lost_its_task_asks_nothing(house: House) -> None:
    task = make_task(house.session, status="running", run=2)
    with pytest.raises(FenceLost):
        writer.run_sync(partial(approvals.ask, task.id, 1, [question()]))
    assert not Approval.objects.filter(task=task).exists()


# ── deciding ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("kind=call", 1),
        ("kind=limit", 1),
        ("tool=write_file", 1),
        ("tool=fetch_url", 0),
        ("trigger=cron", 1),
        ("trigger=api&tool=write_file", 1),
        ("trigger=cron&kind=call", 0),
        ("session_id={session}", 1),
        ("workspace_id={workspace}", 2),
        ("kind=nonsense", None),
        ("session_id=nonsense", None),
    ],
)
def test_inbox_is_narrowed_by_what_and_where(
    alice: Client, house: House, query: str, found: int | None
) -> None:
    elsewhere = make_task(make_session(house.workspace), trigger="cron")
    make_approval(elsewhere, kind="limit", tool="more_budget", capability="")
    filled = query.format(session=house.session.pk, workspace=house.workspace.pk)
    answer = alice.get(f"/api/approvals?{filled}")

    assert (len(answer.json()["items"]) if answer.status_code == 200 else None) == found


def test_inbox_names_the_schedule_or_webhook_behind_it(alice: Client, house: House) -> None:
    place = {"owner": house.alice, "workspace": house.workspace, "goal": "g"}
    hook = Webhook.objects.create(name="GitHub issues", **place)
    nightly = Schedule.objects.create(name="Nightly", cron="0 7 * * *", **place)
    delivered, due, again = (
        make_task(make_session(house.workspace), trigger=trigger)
        for trigger in ("webhook", "cron", "cron")
    )
    for outcome in ("created", "repeated"):
        hook.deliveries.create(task=delivered, size=1, outcome=outcome)
    nightly.ticks.create(task=due, due_at=timezone.now())
    for task in (delivered, due, again):
        make_approval(task)

    items = alice.get("/api/approvals").json()["items"]
    assert {item["task_id"]: (item["trigger"], item["trigger_name"]) for item in items} == {
        str(delivered.pk): ("webhook", "GitHub issues"),
        str(due.pk): ("cron", "Nightly"),
        str(again.pk): ("cron", ""),
        str(house.task.pk): ("api", ""),
    }


def test_approved_call_is_recorded_with_who_and_when(alice: Client, house: House) -> None:
    response = resolve(alice, house.approval, decision="approve", comment="go on")

    assert response.status_code == 202
    card = response.json()["approval"]
    assert (card["status"], card["resolved_by"], card["comment"]) == ("approved", "alice", "go on")
    assert card["resolved_at"]
    read = alice.get(f"/api/approvals/{house.approval.id}").json()
    assert card.items() <= read.items()
    assert not (Path(house.workspace.root) / "a.txt").exists()


def test_repeated_reply_gets_the_stored_answer_and_another_409(alice: Client, house: House) -> None:
    first = resolve(alice, house.approval, decision="approve")

    assert resolve(alice, house.approval, decision="approve").content == first.content
    refused = resolve(alice, house.approval, decision="reject")
    assert code(refused) == (409, "already_resolved")
    assert refused.json()["error"]["details"]["resolved_by"] == "alice"
    dora = Client(headers=bearer(house.dora))
    assert code(resolve(dora, house.approval, decision="approve")) == (409, "already_resolved")


@pytest.mark.parametrize(
    ("name", "status"),
    [("alice", 202), ("dora", 202), ("bob", 404), ("vera", 404), ("charlie", 404)],
)
def test_owner_and_approvers_decide(house: House, name: str, status: int) -> None:
    client = Client(headers=bearer(getattr(house, name)))

    assert resolve(client, house.approval, decision="reject").status_code == status
    previewed = post(
        client, f"/api/approvals/{house.approval.id}/preview", {"edited_arguments": {}}
    )
    assert (previewed.status_code == 404) is (status == 404)


def test_holder_of_the_permission_decides_everywhere(house: House) -> None:
    let_decide_everywhere(house.charlie)
    client = Client(headers=bearer(house.charlie))

    assert client.get(f"/api/tasks/{house.task.id}").status_code == 200
    assert resolve(client, house.approval, decision="reject").status_code == 202


def test_late_reply_is_409(alice: Client, house: House) -> None:
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert code(resolve(alice, house.approval, decision="approve")) == (409, "expired")


def test_changed_target_is_409_with_the_successor(alice: Client, house: House) -> None:
    (Path(house.workspace.root) / "a.txt").write_text("somebody else\n")

    refused = resolve(alice, house.approval, decision="approve")

    assert code(refused) == (409, "stale")
    successor = alice.get(
        f"/api/approvals/{refused.json()['error']['details']['approval_id']}"
    ).json()
    assert (successor["status"], "-somebody else" in successor["diff"]) == ("pending", True)
    old = alice.get(f"/api/approvals/{house.approval.id}").json()
    assert (old["status"], old["replaced_by"]) == ("stale", successor["id"])


@pytest.mark.parametrize("users", [["alice"], ["alice", "dora"]])
async def test_twenty_replies_at_once_have_one_winner(house: House, users: list[str]) -> None:
    tokens = [await sync_to_async(bearer)(getattr(house, name)) for name in users]

    def reply(number: int) -> Awaitable[Any]:
        return AsyncClient().post(
            f"/api/approvals/{house.approval.id}/resolve",
            {"decision": "approve" if number % 4 else "reject"},
            content_type="application/json",
            headers=tokens[number % len(tokens)],
        )

    responses = await asyncio.gather(*(reply(number) for number in range(20)))

    accepted = {response.content for response in responses if response.status_code == 202}
    counted = Counter(response.status_code for response in responses)
    assert set(counted) <= {202, 409}
    assert len(accepted) == 1
    assert await TaskEvent.objects.filter(type="approval_resolved").acount() == 1


# ── several at once ───────────────────────────────────────────────────────────────────────────


def test_batch_answers_each_reply(alice: Client, house: House) -> None:
    second = make_approval(house.task, tool_call_id="call-2")
    done = make_approval(house.task, tool_call_id="call-3", status="expired")

    response = post(
        alice,
        "/api/approvals/resolve",
        {
            "results": [
                {"approval_id": str(house.approval.id), "decision": "approve"},
                {"id": str(done.id), "decision": "approve"},
                {"approval_id": str(second.id), "decision": "reject"},
            ]
        },
    )

    assert response.status_code == 202
    results = response.json()["results"]
    assert [item["ok"] for item in results] == [True, False, True]
    assert results[0]["approval"]["status"] == "approved"
    assert results[1]["error"]["code"] == "expired"
    assert results[2]["approval"]["status"] == "rejected"


def test_batch_with_a_foreign_id_decides_nothing(house: House) -> None:
    client = Client(headers=bearer(house.charlie))
    body = {"results": [{"approval_id": str(house.approval.id), "decision": "reject"}]}

    assert code(post(client, "/api/approvals/resolve", body)) == (404, "not_found")
    assert Approval.objects.get().status == "pending"
