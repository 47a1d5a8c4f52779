"""Approvals and the chat API over HTTP: preview, decide once, confirm."""

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

from agent.toolbox import arguments_digest
from tasks import approvals
from tasks.models import Approval, Schedule, Task, TaskEvent, Webhook
from tasks.writer import writer
from tests.support.people import (
    House,
    bearer,
    let_decide_everywhere,
    make_approval,
    make_house,
    see,
)
from tests.support.questions import question
from tests.support.rows import make_session, make_task

pytestmark = pytest.mark.django_db(transaction=True)  # the writer has a connection of its own


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    see(house.approval)
    return house


def post(client: Client, path: str, body: Any) -> Any:
    return client.post(path, body, content_type="application/json")


def resolve(client: Client, approval: Approval, **reply: Any) -> Any:
    return post(client, f"/api/approvals/{approval.id}/resolve", reply)


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


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
async def test_twenty_replies_at_once_have_one_winner(tmp_path: Path, users: list[str]) -> None:
    house = await sync_to_async(prepared)(tmp_path)
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


def prepared(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    see(house.approval)
    return house


# ── edited arguments ──────────────────────────────────────────────────────────────────────────


def test_preview_shows_what_an_edit_would_do_and_changes_nothing(
    alice: Client, house: House
) -> None:
    edited = {"path": "a.txt", "content": "EDITED"}

    response = post(
        alice, f"/api/approvals/{house.approval.id}/preview", {"edited_arguments": edited}
    )

    assert response.status_code == 200
    assert "+EDITED" in response.json()["diff"]
    assert response.json()["arguments_digest"] == arguments_digest("write_file", edited)
    assert Approval.objects.get().edited_arguments is None


def test_edit_is_what_was_approved(alice: Client, house: House) -> None:
    edited = {"path": "a.txt", "content": "EDITED"}

    card = resolve(alice, house.approval, decision="approve", edited_arguments=edited).json()[
        "approval"
    ]

    assert (card["arguments"]["content"], card["edited_arguments"]) == ("hello", edited)
    assert "+EDITED" in card["diff"]


def test_what_changed_since_the_preview_of_an_edit_is_not_approved(
    alice: Client, house: House
) -> None:
    """The edit is about another file than the card: nothing else looks after that one."""
    other = Path(house.workspace.root) / "other.txt"
    edited = {"path": "other.txt", "content": "EDITED"}
    look = f"/api/approvals/{house.approval.id}/preview"
    reply = {"decision": "approve", "edited_arguments": edited}
    seen = post(alice, look, {"edited_arguments": edited}).json()["target_digest"]
    other.write_text("somebody's work")

    refused = resolve(alice, house.approval, **reply, target_digest=seen)

    assert code(refused) == (400, "preview_changed")
    assert Approval.objects.get().status == "pending"
    again = post(alice, look, {"edited_arguments": edited}).json()
    assert "-somebody's work" in again["diff"]
    done = resolve(alice, house.approval, **reply, target_digest=again["target_digest"])
    assert done.json()["approval"]["status"] == "approved"


def test_a_reply_may_say_which_target_it_saw(alice: Client, house: House) -> None:
    refused = resolve(alice, house.approval, decision="approve", target_digest="0" * 64)
    assert code(refused) == (400, "preview_changed")
    seen = house.approval.target_digest
    done = resolve(alice, house.approval, decision="approve", target_digest=seen)
    assert done.json()["approval"]["status"] == "approved"


@pytest.mark.parametrize(
    "edited",
    [
        {"path": "../../evil", "content": "x"},
        {"path": "/etc/passwd", "content": "x"},
        {"path": "a.txt"},
        {"path": "a.txt", "content": "x", "mode": "append"},
        {"path": 7, "content": "x"},
        {},
    ],
    ids=["outside", "absolute", "missing", "extra", "type", "nothing"],
)
def test_refused_edit_is_400_and_it_stays_pending(alice: Client, house: House, edited: Any) -> None:
    refused = resolve(alice, house.approval, decision="approve", edited_arguments=edited)

    assert refused.status_code == 400
    assert set(refused.json()["error"]["details"]) == {"edited_arguments"}
    previewed = post(
        alice, f"/api/approvals/{house.approval.id}/preview", {"edited_arguments": edited}
    )
    assert previewed.content == refused.content
    assert Approval.objects.get().status == "pending"


def test_tool_of_a_call_cannot_be_changed(alice: Client, house: House) -> None:
    refused = resolve(alice, house.approval, decision="approve", name="read_file", tool="read_file")

    assert set(refused.json()["error"]["details"]) == {"name", "tool"}
    assert Approval.objects.get().status == "pending"


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


# ── the chat API ──────────────────────────────────────────────────────────────────────────────


def test_chat_asks_once_at_a_time(alice: Client, house: House) -> None:
    Task.objects.update(status=Task.Status.COMPLETED)
    body = {"session_id": str(house.session.id), "text": "What is cheapest?"}

    first = post(alice, "/api/chat", body)

    assert first.status_code == 200
    assert (first.json()["ok"], Task.objects.get(pk=first.json()["task_id"]).trigger) == (
        True,
        "chat",
    )
    assert code(post(alice, "/api/chat", body)) == (409, "session_busy")


def confirm(client: Client, house: House, *results: dict[str, Any]) -> Any:
    return post(client, "/api/confirm", {"session_id": str(house.session.id), "results": results})


def test_confirm_decides_by_call(alice: Client, house: House) -> None:
    make_approval(house.task, tool_call_id="call-2")
    edited = {"path": "a.txt", "content": "EDITED"}

    response = confirm(
        alice,
        house,
        {"tool_call_id": "call-1", "approved": True, "arguments": edited},
        {"tool_call_id": "call-2", "approved": False},
    )

    assert response.json() == {
        "ok": True,
        "results": [
            {"tool_call_id": "call-1", "ok": True, "error": None},
            {"tool_call_id": "call-2", "ok": True, "error": None},
        ],
    }
    first, second = Approval.objects.order_by("tool_call_id")
    assert (first.status, first.edited_arguments, second.status) == ("approved", edited, "rejected")


def test_confirm_answers_a_question(alice: Client, house: House) -> None:
    Approval.objects.filter(pk=house.approval.pk).update(kind="question", tool="ask_user")
    given = {"tool_call_id": "call-1", "approved": True}
    assert confirm(alice, house, given).status_code == 400
    assert confirm(alice, house, {**given, "answer": "2025"}).json()["ok"]
    house.approval.refresh_from_db()
    assert (house.approval.status, house.approval.answer) == ("approved", "2025")


def test_confirm_twice_is_harmless_and_a_change_of_mind_409(alice: Client, house: House) -> None:
    confirm(alice, house, {"tool_call_id": "call-1", "approved": True})

    assert confirm(alice, house, {"tool_call_id": "call-1", "approved": True}).status_code == 200
    refused = confirm(alice, house, {"tool_call_id": "call-1", "approved": False})
    assert code(refused) == (409, "already_resolved")


def test_confirm_says_which_answer_does_not_count(alice: Client, house: House) -> None:
    make_approval(house.task, tool_call_id="call-2", status="expired")

    body = confirm(
        alice,
        house,
        {"tool_call_id": "call-1", "approved": False},
        {"tool_call_id": "call-2", "approved": True},
    ).json()

    assert (body["ok"], body["results"][1]["error"]["code"]) == (False, "expired")


@pytest.mark.parametrize("name", ["alice", "bob"])
def test_call_that_does_not_wait_or_is_not_theirs_to_decide_is_404(house: House, name: str) -> None:
    client = Client(headers=bearer(getattr(house, name)))
    call = "call-9" if name == "alice" else "call-1"

    assert code(confirm(client, house, {"tool_call_id": call, "approved": True})) == (
        404,
        "not_found",
    )
