"""Who is asking, and what they may see, change and decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.db.models import Model
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

from tasks import access
from tasks.errors import Forbidden, NotFound, NotIdentified
from tasks.models import Approval, Member, Session, Task, Workspace
from tests.support.people import House, let_decide_everywhere, make_approval, make_house, principal
from tests.support.requests import CSRF, with_cookie, with_token
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db

# ── cookies ───────────────────────────────────────────────────────────────────────────────────


def test_cookie_identifies_its_user(house: House) -> None:
    who = access.identify_now(with_cookie(house.alice))

    assert (who.user_id, who.token_id) == (house.alice.pk, None)
    assert who.session_key
    assert access.renewed_now(who)


def test_no_cookie_is_nobody() -> None:
    with pytest.raises(NotIdentified):
        access.identify_now(RequestFactory().get("/api/tasks"))


def test_made_up_cookie_is_nobody() -> None:
    request = RequestFactory().get("/api/tasks")
    request.COOKIES["sessionid"] = "made-up"
    with pytest.raises(NotIdentified):
        access.identify_now(request)


def test_logout_ends_streams(house: House) -> None:
    client = Client()
    client.force_login(house.alice)
    request = RequestFactory().get("/api/tasks")
    request.COOKIES["sessionid"] = client.cookies["sessionid"].value
    who = access.identify_now(request)

    client.logout()

    assert not access.renewed_now(who)


@pytest.mark.parametrize("change", ["password", "inactive"])
def test_changed_account_ends_streams(house: House, change: str) -> None:
    request = with_cookie(house.alice)
    who = access.identify_now(request)

    house.alice.set_password("another one")
    house.alice.is_active = change != "inactive"
    house.alice.save()

    assert not access.renewed_now(who)
    with pytest.raises(NotIdentified):
        access.identify_now(request)


def test_cookie_with_csrf_token_may_change(house: House) -> None:
    request = with_cookie(house.alice, "POST", **{"X-CSRFToken": CSRF})

    assert access.identify_now(request).user_id == house.alice.pk


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-CSRFToken": "d" * 32},
        {"X-CSRFToken": "short"},
        {"X-CSRFToken": CSRF, "Origin": "https://evil.example"},
        {"X-CSRFToken": CSRF, "Origin": "null"},
    ],
    ids=["none", "wrong", "malformed", "foreign origin", "null origin"],
)
def test_cookie_without_csrf_proof_is_refused(
    house: House, method: str, headers: dict[str, str]
) -> None:
    with pytest.raises(Forbidden) as refused:
        access.identify_now(with_cookie(house.alice, method, **headers))
    assert (refused.value.status, refused.value.code) == (403, "csrf")


def test_unreadable_form_is_refused_not_a_crash(house: House) -> None:
    request = with_cookie(
        house.alice, "POST", **{"Content-Type": "multipart/form-data; boundary=\xff"}
    )
    with pytest.raises(Forbidden):
        access.identify_now(request)


async def test_identify_works_from_the_event_loop() -> None:
    with pytest.raises(NotIdentified):
        await access.identify(RequestFactory().get("/api/tasks"))


# ── what they may see ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "sees", "writes", "decides"),
    [
        ("alice", True, True, True),
        ("bob", True, True, False),
        ("vera", True, False, False),
        ("dora", True, True, True),
        ("charlie", False, False, False),
    ],
)
def test_roles(house: House, name: str, sees: bool, writes: bool, decides: bool) -> None:
    who = principal(getattr(house, name))

    assert access.visible_workspaces(who).exists() is sees
    assert access.visible_sessions(who).exists() is sees
    assert access.visible_tasks(who).exists() is sees
    assert access.visible_approvals(who).exists() is sees
    assert access.visible_sessions(who, access.WRITERS).exists() is writes
    assert access.visible_tasks(who, access.WRITERS).exists() is writes
    assert access.visible_approvals(who, access.APPROVERS).exists() is decides


def finds(find: Callable[..., Model], who: access.Principal, row: Model, roles: Any) -> bool:
    try:
        return find(who, row.pk, roles) == row
    except NotFound:
        return False


def test_one_row_is_judged_like_many(house: House) -> None:
    """Both forms of the rule, for everybody, every role and objects with different owners."""
    guest = make_session(house.workspace, owner=house.bob)
    away = make_session(make_workspace(house.charlie), owner=house.vera)
    for session in (guest, away):
        make_approval(make_task(session))
    make_task(guest)
    gone = make_session(house.workspace, hidden=True)
    make_approval(make_task(gone))
    let_decide_everywhere(house.charlie)
    root = make_user("root", is_superuser=True)
    Task.objects.filter(session=away).update(status=Task.Status.FAILED)
    tables = {
        Workspace: (access.visible_workspaces, access.find_workspace),
        Session: (access.visible_sessions, access.find_session),
        Task: (access.visible_tasks, access.find_task),
        Approval: (access.visible_approvals, access.find_approval),
    }
    for user in (house.alice, house.bob, house.vera, house.dora, house.charlie, root):
        who = principal(user)
        unfinished = access.visible_tasks(who).filter(status__in=Task.OPEN)
        assert Counter(access.open_tasks(who)) == Counter(unfinished)
        for roles in (frozenset(Member.Role), access.WRITERS, access.APPROVERS):
            for model, (visible, find) in tables.items():
                several = set(visible(who, roles))
                for row in model._default_manager.all():
                    assert finds(find, who, row, roles) is (row in several), (user, roles, row)


@pytest.mark.only_sqlite  # asks it for its plan
def test_open_tasks_are_found_by_their_index(house: House) -> None:
    with CaptureQueriesContext(connection) as captured:
        access.open_tasks(principal(house.alice))
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN QUERY PLAN " + captured[-1]["sql"])
        plan = " ".join(row[3] for row in cursor.fetchall())

    assert "SEARCH t USING INDEX task_" in plan
    assert "status=?" in plan


@pytest.mark.parametrize("by", ["user", "group", "superuser", "nothing", "another permission"])
def test_right_to_decide_everywhere_is_djangos(house: House, by: str) -> None:
    right = Permission.objects.get(codename="resolve_approval")
    group = Group.objects.create(name="deciders")
    house.charlie.groups.add(group)
    if by == "user":
        house.charlie.user_permissions.add(right)
    elif by == "group":
        group.permissions.add(right)
    elif by == "superuser":
        User.objects.filter(pk=house.charlie.pk).update(is_superuser=True)
    elif by == "another permission":
        house.charlie.user_permissions.add(Permission.objects.get(codename="change_approval"))

    user = User.objects.get(pk=house.charlie.pk)
    by_token = access.identify_now(with_token(access.issue_token(user)))

    assert by_token.decides_everywhere is user.has_perm("tasks.resolve_approval")
    assert access.principal_of(user).decides_everywhere is by_token.decides_everywhere


@pytest.mark.django_db(transaction=True)
async def test_foreign_unknown_and_malformed_ids_are_the_same_error(tmp_path: Path) -> None:
    house = await sync_to_async(make_house)(tmp_path / "desk")
    who = await sync_to_async(principal)(house.charlie)
    messages = set()
    for task_id in (house.task.id, uuid4(), "not an id", "", None, 7, "\x00"):
        with pytest.raises(NotFound) as refused:
            await access.visible_task(who, task_id)
        messages.add((refused.value.code, refused.value.message, refused.value.details))
    assert len(messages) == 1


def test_staff_without_rights_sees_nothing(house: House) -> None:
    house.charlie.is_staff = True
    house.charlie.save()
    who = principal(house.charlie)

    assert not access.visible_tasks(who).exists()
    assert not access.visible_approvals(who).exists()


def test_permission_to_decide_grants_reading_of_tasks_with_approvals_only(house: House) -> None:
    quiet = make_task(house.session)
    let_decide_everywhere(house.charlie)
    who = principal(house.charlie)

    assert list(access.visible_tasks(who)) == [house.task]
    assert quiet not in access.visible_tasks(who)
    assert list(access.visible_approvals(who, access.APPROVERS)) == [house.approval]
    assert not access.visible_sessions(who).exists()
    assert not access.visible_tasks(who, access.WRITERS).exists()


def test_members_do_not_multiply_rows(house: House) -> None:
    make_session(house.workspace, owner=house.bob)

    assert access.visible_sessions(principal(house.alice)).count() == 2
    assert access.visible_tasks(principal(house.bob)).count() == 1


def test_deleted_session_is_nobodys(house: House) -> None:
    type(house.session).objects.update(hidden=True)
    who = principal(house.alice)

    assert not access.visible_sessions(who).exists()
    assert not access.visible_tasks(who).exists()
    assert not access.visible_approvals(who).exists()
