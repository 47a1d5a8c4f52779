"""The chat API over HTTP: one question at a time, and a list of answers to confirm."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tasks.models import Approval, Task
from tests.support.api import code, post
from tests.support.people import House, bearer, make_approval

pytestmark = [
    pytest.mark.django_db(transaction=True),  # the writer has a connection of its own
    pytest.mark.usefixtures("seen"),
]


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
