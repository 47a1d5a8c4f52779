"""A call with other arguments, over HTTP: previewed, approved as it was seen, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agent.toolbox import arguments_digest
from tasks.models import Approval
from tests.support.api import code, post, resolve
from tests.support.people import House

pytestmark = [
    pytest.mark.django_db(transaction=True),  # the writer has a connection of its own
    pytest.mark.usefixtures("seen"),
]


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
