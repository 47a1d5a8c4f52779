"""People in a workspace, and whose a session is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tasks import access, audit, members
from tasks.models import AuditEntry, Member, Session
from tests.support.people import House, bearer, make_approval, principal
from tests.support.rows import make_session, make_task, make_user

pytestmark = pytest.mark.django_db


def call(user: User, method: str, path: str, body: Any = None) -> Any:
    client = Client(headers=bearer(user))
    return getattr(client, method)(path, body, content_type="application/json")


def people(house: House) -> str:
    return f"/api/workspaces/{house.workspace.pk}/members"


def told(action: str) -> list[tuple[str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(action=action).order_by("sequence")
    return [(row.by, json.loads(row.details)) for row in rows]


def test_everybody_in_it_sees_who_is_in_it(house: House) -> None:
    for user in (house.alice, house.bob, house.vera, house.dora):
        items = Client(headers=bearer(user)).get(people(house)).json()["items"]
        assert [(item["username"], item["role"]) for item in items] == [
            ("alice", "owner"),
            ("bob", "member"),
            ("vera", "viewer"),
            ("dora", "approver"),
        ]
    assert Client(headers=bearer(house.charlie)).get(people(house)).status_code == 404


def test_the_owner_lets_in_changes_and_removes(house: House) -> None:
    charlie = f"{people(house)}/charlie"
    assert call(house.alice, "put", charlie, {"role": "viewer"}).json()["role"] == "viewer"
    assert access.visible_tasks(principal(house.charlie)).exists()
    assert call(house.alice, "put", charlie, {"role": "approver"}).status_code == 200
    assert access.visible_approvals(principal(house.charlie), access.APPROVERS).exists()
    assert call(house.alice, "delete", charlie).status_code == 204
    assert not access.visible_tasks(principal(house.charlie)).exists()

    [(by, added)] = told("workspace.member_added")
    [(_, changed)] = told("workspace.member_changed")
    [(_, removed)] = told("workspace.member_removed")
    assert (by, added["note"], added["after"]["role"]) == ("alice", "charlie", "viewer")
    assert (changed["before"]["role"], changed["after"]["role"]) == ("viewer", "approver")
    assert removed["before"] == {"user": house.charlie.pk, "role": "approver"}
    assert audit.verify().problem == ""


def test_the_same_role_again_is_no_change(house: House) -> None:
    assert call(house.alice, "put", f"{people(house)}/bob", {"role": "member"}).status_code == 200

    assert not AuditEntry.objects.filter(object_type="workspace").exists()


@pytest.mark.parametrize("name", ["bob", "vera", "dora", "charlie"])
def test_nobody_but_the_owner_says_who(house: House, name: str) -> None:
    user, before = getattr(house, name), list(Member.objects.order_by("pk").values())

    for method, body in (("put", {"role": "approver"}), ("delete", None)):
        assert call(user, method, f"{people(house)}/{name}", body).status_code == 404
    assert list(Member.objects.order_by("pk").values()) == before


@pytest.mark.parametrize(
    ("name", "role", "status"),
    [
        ("nobody", "member", 404),
        ("gone", "member", 404),
        ("alice", "viewer", 400),
        ("bob", "owner", 400),
        ("bob", "", 400),
    ],
)
def test_what_cannot_be_is_refused(house: House, name: str, role: str, status: int) -> None:
    make_user("gone", is_active=False)

    answer = call(house.alice, "put", f"{people(house)}/{name}", {"role": role})
    assert answer.status_code == status


# ── whose a session is ────────────────────────────────────────────────────────────────────────


def hand_over(user: User, session: Session, to: str) -> Any:
    return call(user, "post", f"/api/sessions/{session.pk}/handover", {"username": to})


def test_a_session_becomes_a_colleague_s(house: House) -> None:
    answer = hand_over(house.alice, house.session, "bob")

    assert (answer.status_code, answer.json()["owner"]) == (200, "bob")
    [(by, details)] = told("session.handed_over")
    assert (by, details["before"]["name"], details["after"]["name"]) == ("alice", "alice", "bob")
    again = hand_over(house.bob, house.session, "bob")
    assert again.status_code == 200
    assert len(told("session.handed_over")) == 1


@pytest.mark.parametrize("name", ["bob", "vera", "dora", "charlie"])
def test_others_cannot_take_it(house: House, name: str) -> None:
    assert hand_over(getattr(house, name), house.session, name).status_code == 404
    house.session.refresh_from_db()
    assert house.session.owner == house.alice


@pytest.mark.parametrize(("to", "status"), [("vera", 400), ("charlie", 400), ("nobody", 404)])
def test_only_who_may_work_there_gets_it(house: House, to: str, status: int) -> None:
    assert hand_over(house.alice, house.session, to).status_code == status
    house.session.refresh_from_db()
    assert house.session.owner == house.alice


def test_the_workspace_s_owner_hands_over_what_a_colleague_left(house: House) -> None:
    session = make_session(house.workspace, owner=house.bob)

    assert hand_over(house.alice, session, "dora").json()["owner"] == "dora"


@pytest.mark.parametrize("how", ["removed", "viewer"])
def test_a_session_does_not_stay_with_who_may_no_longer_work_there(house: House, how: str) -> None:
    session, hers = (make_session(house.workspace, owner=who) for who in (house.bob, house.dora))
    path = f"{people(house)}/bob"
    if how == "removed":
        call(house.alice, "delete", path)
    else:
        call(house.alice, "put", path, {"role": "viewer"})

    session.refresh_from_db()
    hers.refresh_from_db()
    assert (session.owner, hers.owner) == (house.alice, house.dora)
    assert not access.visible_sessions(principal(house.bob), access.WRITERS).exists()
    [(by, details)] = told("session.handed_over")
    assert (by, bool(details["note"])) == ("alice", True)


def test_what_is_in_a_session_goes_with_it_in_every_list(house: House) -> None:
    session = make_session(house.workspace, owner=house.bob)
    approval = make_approval(make_task(session))
    assert [session.pk for session in lists_of(house.bob)] == [session.pk] * 2

    hand_over(house.bob, session, "dora")
    assert lists_of(house.bob) == []
    assert [session.pk for session in lists_of(house.dora)] == [session.pk] * 2

    call(house.alice, "delete", f"{people(house)}/dora")
    assert not access.visible_tasks(principal(house.dora)).exists()
    assert not access.visible_approvals(principal(house.dora)).exists()
    assert access.find_approval(principal(house.alice), approval.pk, access.OWNER_ONLY) == approval


def lists_of(user: User) -> list[Session]:
    """The sessions of the tasks and the approvals that are listed as their own."""
    who = principal(user)
    tasks = access.visible_tasks(who, access.OWNER_ONLY)
    approvals = access.visible_approvals(who, access.OWNER_ONLY)
    return [*(row.session for row in tasks), *(row.task.session for row in approvals)]


def test_reclaiming_again_changes_nothing(house: House) -> None:
    make_session(house.workspace, owner=house.bob)

    members.reclaim(house.workspace, "alice")
    assert not told("session.handed_over")


def test_sessions_can_be_listed_by_workspace(house: House) -> None:
    other = make_session(owner=house.alice)
    client = Client(headers=bearer(house.alice))

    items = client.get(f"/api/sessions?workspace_id={house.workspace.pk}").json()["items"]
    assert [item["id"] for item in items] == [str(house.session.pk)]
    assert client.get(f"/api/sessions?workspace_id={other.workspace_id}").status_code == 404
