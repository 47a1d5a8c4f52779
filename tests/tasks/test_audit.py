"""The audit: its chain, its masks, and that what matters is in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO

import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.db.models import F, QuerySet
from django.test import AsyncClient, Client

from tasks import access, audit, workspaces
from tasks.admin.base import EvidenceAdmin
from tasks.admin.editing import AuditedAdmin
from tasks.audit import Change
from tasks.models import AuditEntry, AuditHead
from tasks.signin import make_link
from tests.support.people import bearer
from tests.support.rows import make_session, make_user

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]


def note(count: int) -> None:
    for number in range(count):
        audit.note(Change(action="thing.changed", object_type="thing", object_id=str(number)))


def actions() -> list[str]:
    return list(AuditEntry.objects.order_by("sequence").values_list("action", flat=True))


def test_it_works():
    note(3)
    chain = audit.verify()
    assert (chain.sequence, chain.problem) == (3, "")
    assert AuditHead.objects.get().last_hash == chain.hash


TAMPERINGS: dict[str, Callable[[QuerySet[AuditEntry]], object]] = {
    "by": lambda found: found.update(by="mallory"),
    "action": lambda found: found.update(action="thing.made"),
    "details": lambda found: found.update(details="{}"),
    "object": lambda found: found.update(object_id="9"),
    "time": lambda found: found.update(created_at=F("created_at") - timedelta(seconds=1)),
    "deleted": lambda found: found.delete(),
    "swapped": lambda found: _swap(),
}


def _swap() -> None:
    with connection.cursor() as cursor:
        for old, new in ((2, -2), (3, 2), (-2, 3)):
            change = "UPDATE tasks_auditentry SET sequence = %s WHERE sequence = %s"
            cursor.execute(change, [new, old])


@pytest.mark.parametrize("how", TAMPERINGS)
def test_a_tampered_entry_is_named_by_verify_log(how):
    note(4)
    TAMPERINGS[how](AuditEntry.objects.filter(sequence=2))
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("verify_log", stdout=out)
    assert "audit: entry 2 " in out.getvalue()


def test_a_cut_at_the_end_is_seen_by_the_head_and_with_the_head_by_the_root():
    note(3)
    before = _root()
    AuditEntry.objects.filter(sequence=3).delete()
    assert audit.verify().problem == "entry 3 is missing at the end"
    AuditHead.objects.update(last_sequence=2, last_hash=AuditEntry.objects.get(sequence=2).hash)
    assert audit.verify().problem == ""
    assert _root() != before


def _root() -> str:
    out = StringIO()
    call_command("verify_log", stdout=out)
    return out.getvalue().partition("root ")[2]


def test_another_key_fits_no_entry(settings):
    note(1)
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, audit_key=b"another")
    assert "does not match" in audit.verify().problem


def test_inside_a_transaction_the_entry_shares_its_fate():
    with transaction.atomic():
        note(1)
        transaction.set_rollback(True)
    assert actions() == []
    with transaction.atomic():
        note(2)
    assert audit.verify().sequence == 2


def test_secrets_are_masked_however_deep():
    secret = {
        "password": "hunter2",
        "password2": "hunter2",
        "list": [{"api_key": "k", "name": "n"}],
        "token": "",
    }

    audit.note(Change(action="a.b", object_type="a", before=secret, after={"digest": "d"}))
    details = AuditEntry.objects.get().details
    assert "hunter2" not in details
    assert '"api_key":"•••"' in details
    assert '"token":""' in details
    assert '"name":"n"' in details


def test_odd_names_are_stored():
    audit.note(Change(action="a.b", by="a\x00b\ud800" * 100, object_type="a", name="\x00\u202e"))
    assert audit.verify().problem == ""


def test_signing_in_is_an_entry():
    alice = make_user("alice", is_staff=True)
    Client().post(make_link(alice))
    made, used = AuditEntry.objects.order_by("sequence")
    assert (made.action, made.by, made.object_id) == ("user.link_made", "-", str(alice.pk))
    assert (used.action, used.by, used.object_id) == ("user.signed_in", "alice", str(alice.pk))


def test_tokens_are_audited_without_being_told():
    alice = make_user("alice")
    token = access.issue_token(alice, "laptop")
    row = alice.api_tokens.get()
    assert access.revoke_token(row.pk, "alice", alice.pk)
    assert not access.revoke_token(row.pk, "alice", alice.pk)
    assert actions() == ["token.made", "token.revoked"]
    stored = str(list(AuditEntry.objects.values()))
    assert token not in stored
    assert row.digest not in stored


def test_workspaces_are_audited(tmp_path):
    alice = make_user("alice")
    workspaces.register(alice, "desk", tmp_path, anywhere=True)
    assert actions() == ["workspace.made"]


async def test_a_renamed_or_archived_session_is_audited_with_what_differs():
    session = await sync_to_async(make_session)(title="Old")
    headers = await sync_to_async(bearer)(session.owner)
    for changes in ({"title": "New", "archived": False}, {"title": "New"}, {"archived": True}):
        answer = await AsyncClient().patch(
            f"/api/sessions/{session.pk}", changes, "application/json", headers=headers
        )
        assert answer.status_code == 200
    entries = AuditEntry.objects.filter(action="session.changed").order_by("sequence")
    renamed, archived = [entry async for entry in entries]
    assert (renamed.by, renamed.object_id) == (session.owner.username, str(session.pk))
    assert '"before":{"title":"Old"}' in renamed.details
    assert '"after":{"title":"New"}' in renamed.details
    assert '"after":{"archived":true}' in archived.details


async def test_a_deleted_session_is_audited():
    session = await sync_to_async(make_session)()
    headers = await sync_to_async(bearer)(session.owner)
    answer = await AsyncClient().delete(f"/api/sessions/{session.pk}", headers=headers)
    assert answer.status_code == 204
    assert (await sync_to_async(actions)())[-1] == "session.deleted"


# ── nothing is changed in the admin without an entry ──────────────────────────────────────────

WRITES_ITS_OWN = {"ModelProfile"}
"""Through `tasks.profiles`, which notes; test_profiles.py looks at that."""


def test_every_page_on_which_something_can_be_changed_notes_it() -> None:
    unnoted = [
        model.__name__
        for model, page in admin.site._registry.items()
        if not isinstance(page, EvidenceAdmin | AuditedAdmin)
    ]
    assert set(unnoted) == WRITES_ITS_OWN


def test_accounts_and_groups_are_audited_and_passwords_are_not_told() -> None:
    boss = make_user("boss", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(boss)
    group = Group.objects.create(name="approvers")
    may = Permission.objects.get(codename="resolve_approval")
    secret = "hunter2hunter2"
    made = {"username": "eve", "usable_password": "true", "password1": secret, "password2": secret}
    client.post("/admin/auth/user/add/", made)
    eve = User.objects.get(username="eve")
    rights = {
        "username": "eva",
        "is_active": "on",
        "groups": [group.pk],
        "user_permissions": [may.pk],
        "date_joined_0": "2026-01-01",
        "date_joined_1": "00:00:00",
    }
    assert client.post(f"/admin/auth/user/{eve.pk}/change/", rights).status_code == 302
    password = {"usable_password": "true", "password1": secret + "x", "password2": secret + "x"}
    assert client.post(f"/admin/auth/user/{eve.pk}/password/", password).status_code == 302
    change = {"name": "approvers", "permissions": [may.pk]}
    assert client.post(f"/admin/auth/group/{group.pk}/change/", change).status_code == 302
    assert actions()[-4:] == ["user.made", "user.changed", "user.password_changed", "group.changed"]
    changed = AuditEntry.objects.get(action="user.changed")
    assert (changed.by, changed.object_id) == ("boss", str(eve.pk))
    assert '"username":"eve"' in changed.details
    assert '"groups":["approvers"]' in changed.details
    assert "resolve_approval" in AuditEntry.objects.get(action="group.changed").details or (
        "Can decide approvals" in AuditEntry.objects.get(action="group.changed").details
    )
    assert "hunter2" not in str(list(AuditEntry.objects.values()))
