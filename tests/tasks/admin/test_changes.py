"""Evidence stays; what may be changed in the admin is changed by the API's rules, and audited."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agent import events as ev
from tasks import access, audit
from tasks.models import (
    ApiToken,
    Approval,
    Artifact,
    AuditEntry,
    Member,
    Schedule,
    Session,
    Task,
    Webhook,
    Workspace,
)
from tests.support.admin import append, committed, listing, signed_in, staff, text, url
from tests.support.people import House
from tests.support.rows import make_session, make_user, make_workspace

pytestmark = pytest.mark.django_db

EVIDENCE = (Task, Approval, Session, Artifact, AuditEntry, ApiToken)


def test_evidence_can_be_neither_added_nor_changed_nor_deleted(admin, house):
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    Artifact.objects.create(
        task=house.task, path="a.md", size=1, sha256="0", media_type="text/plain"
    )
    access.issue_token(house.alice, "t")
    for model in EVIDENCE:
        name = f"admin:tasks_{model._meta.model_name}"
        row: Any = model.objects.first()
        before = model.objects.values().get(pk=row.pk)
        assert admin.get(reverse(f"{name}_add")).status_code == 403
        assert admin.post(reverse(f"{name}_add"), {}).status_code == 403
        assert (
            admin.post(reverse(f"{name}_change", args=[row.pk]), {"goal": "x"}).status_code == 403
        )
        delete = reverse(f"{name}_delete", args=[row.pk])
        assert admin.post(delete, {"post": "yes"}).status_code == 403
        action = {"action": "delete_selected", "_selected_action": [row.pk], "post": "yes"}
        admin.post(reverse(f"{name}_changelist"), action)
        assert model.objects.values().get(pk=row.pk) == before


def test_a_token_can_be_revoked_and_its_hash_is_nowhere(admin, house):
    token = access.issue_token(house.alice, "laptop")
    row = ApiToken.objects.get()
    for page in (text(admin.get(listing(ApiToken))), text(admin.get(url(row)))):
        assert row.digest not in page
        assert token not in page
        assert row.prefix in page
    assert "Revoked" in text(admin.post(url(row, "revoke"), follow=True))
    assert AuditEntry.objects.filter(action="token.revoked").count() == 1
    viewer = signed_in(staff("stan", "view_apitoken"))
    other = access.issue_token(house.bob, "phone")
    row = ApiToken.objects.get(digest=access.digest_of(other))
    assert "may not revoke" in text(viewer.post(url(row, "revoke"), follow=True))
    assert viewer.get(url(row, "revoke")).status_code == 405
    row.refresh_from_db()
    assert row.revoked_at is None


NO_MEMBERS = {"members-TOTAL_FORMS": 0, "members-INITIAL_FORMS": 0}


def test_a_workspace_is_registered_by_the_same_rules(admin, tmp_path):
    alice = make_user("alice")
    inside = tmp_path / "desk"
    inside.mkdir()
    values = {"name": "desk", "owner": alice.pk, "root": str(inside), "instructions": ""}
    admin.post(reverse("admin:tasks_workspace_add"), values | NO_MEMBERS)
    assert Workspace.objects.get().root == str(inside)
    nested = inside / "deeper"
    nested.mkdir()
    for wrong, told in (
        (str(nested), "lies inside the folder"),
        (str(tmp_path / "nowhere"), "does not exist"),
    ):
        body = values | NO_MEMBERS | {"name": "other", "root": wrong}
        assert told in text(admin.post(reverse("admin:tasks_workspace_add"), body))
    assert Workspace.objects.count() == 1
    entry = AuditEntry.objects.get(action="workspace.made")
    assert (entry.by, entry.object_id) == ("admin", str(Workspace.objects.get().pk))


def test_members_are_audited(admin, house):
    member = Member.objects.get(user=house.vera)
    left = make_session(house.workspace, owner=house.bob)
    values = {
        "name": "desk",
        "instructions": "Be brief.",
        "members-TOTAL_FORMS": 4,
        "members-INITIAL_FORMS": 3,
    }
    for number, row in enumerate(Member.objects.order_by("pk")):
        values |= {
            f"members-{number}-id": row.pk,
            f"members-{number}-workspace": house.workspace.pk,
            f"members-{number}-user": row.user_id,
            f"members-{number}-role": "approver" if row.pk == member.pk else row.role,
        }
        if row.user_id == house.bob.pk:
            values[f"members-{number}-DELETE"] = "on"
    values |= {
        "members-3-workspace": house.workspace.pk,
        "members-3-user": house.charlie.pk,
        "members-3-role": "viewer",
    }
    answer = admin.post(url(house.workspace), values)
    assert answer.status_code == 302, answer.content.decode()
    entries = AuditEntry.objects.filter(object_type="workspace").order_by("sequence")
    told = {entry.action: json.loads(entry.details) for entry in entries}
    assert set(told) == {
        "workspace.changed",
        "workspace.member_added",
        "workspace.member_changed",
        "workspace.member_removed",
    }
    assert told["workspace.changed"]["after"] == {"instructions": "Be brief."}
    assert told["workspace.member_changed"]["before"]["role"] == "viewer"
    assert told["workspace.member_changed"]["after"]["role"] == "approver"
    assert told["workspace.member_removed"]["before"]["user"] == house.bob.pk
    left.refresh_from_db()
    assert left.owner == house.alice
    assert audit.verify().problem == ""


def test_a_taken_name_is_refused_in_words(admin, house):
    make_workspace(house.alice, name="taken")
    values = {"name": "taken", "instructions": ""} | NO_MEMBERS
    assert "There is a workspace with this name already" in text(
        admin.post(url(house.workspace), values)
    )


@committed
def test_a_webhook_from_its_making_to_its_end(admin, house):
    form = {"name": "issues", "owner": house.alice.pk, "workspace": house.workspace.pk}
    form |= {"goal": "Sort it", "model_profile": "", "mode": "deny", "enabled": "on"}
    shown = admin.post(reverse("admin:tasks_webhook_add"), form)
    (first,) = re.findall(r"whsec_[\w+/=]+", text(shown))
    assert "no-store" in shown["Cache-Control"]
    webhook = Webhook.objects.get()
    path = f"/api/webhooks/{webhook.pk}"
    assert path in text(shown)
    assert "whsec_" not in text(admin.get(url(webhook)))
    (second,) = re.findall(r"whsec_[\w+/=]+", text(admin.post(url(webhook, "secret"))))
    sent = [
        Client().post(
            path, b"x", content_type="text/plain", headers={"authorization": f"Bearer {key}"}
        )
        for key in (first, second)
    ]
    assert [answer.status_code for answer in sent] == [404, 202]
    assert Task.objects.get(trigger="webhook").mode == "deny"
    assert "Its log" in text(admin.get(url(webhook)))
    assert "Queued" in text(admin.get(listing(Webhook)))
    off = {name: value for name, value in form.items() if name != "enabled"}
    admin.post(url(webhook), off)
    assert Webhook.objects.filter(enabled=False).count() == 1
    admin.post(reverse("admin:tasks_webhook_delete", args=[webhook.pk]), {"post": "yes"})
    entries = AuditEntry.objects.filter(object_type="webhook").order_by("sequence")
    assert [entry.action for entry in entries] == [
        "webhook.made",
        "webhook.secret_made",
        "webhook.secret_made",
        "webhook.changed",
        "webhook.deleted",
    ]
    assert not any(key in entry.details for entry in entries for key in (first, second, "sealed:"))
    assert Task.objects.filter(trigger="webhook").count() == 1


def test_only_who_may_change_it_makes_a_new_secret(house):
    webhook = Webhook.objects.create(
        owner=house.alice, workspace=house.workspace, name="w", goal="g"
    )
    page = signed_in(staff("vic", "view_webhook"))
    assert "New secret" not in text(page.get(url(webhook)))
    assert "You may not change this webhook" in text(page.post(url(webhook, "secret"), follow=True))
    assert page.get(url(webhook, "secret")).status_code == 405
    webhook.refresh_from_db()
    assert webhook.secret == ""


def schedule_form(house: House, **more: Any) -> dict[str, Any]:
    return {
        "name": "morning",
        "owner": house.alice.pk,
        "workspace": house.workspace.pk,
        "goal": "Compare the quotes",
        "cron": "0 7 * * 1-5",
        "time_zone": "Europe/Berlin",
        "mode": "",
        "enabled": "on",
        **more,
    }


@committed
def test_a_schedule_from_its_making_to_its_end(admin, house):
    add = reverse("admin:tasks_schedule_add")
    assert admin.post(add, schedule_form(house)).status_code == 302
    schedule = Schedule.objects.get()
    assert schedule.next_due_at is not None
    assert schedule.next_due_at > timezone.now()
    assert "UTC · " in text(admin.get(url(schedule)))
    assert "Its task is made" in text(admin.post(url(schedule, "run"), follow=True))
    page = text(admin.post(url(schedule, "run"), follow=True))
    assert "No task was made: The last task is not finished (queued)." in page
    assert "Skipped: The last task is not finished" in text(admin.get(listing(Schedule)))
    off = schedule_form(house) | {"cron": "0 8 * * *"}
    off.pop("enabled")
    admin.post(url(schedule), off)
    assert Schedule.objects.filter(next_due_at=None, enabled=False).count() == 1
    delete = reverse("admin:tasks_schedule_delete", args=[schedule.pk])
    admin.post(delete, {"post": "yes"})
    actions = AuditEntry.objects.filter(object_type="schedule").order_by("sequence")
    assert list(actions.values_list("action", flat=True)) == [
        "schedule.made",
        "schedule.run_now",
        "schedule.run_now",
        "schedule.changed",
        "schedule.deleted",
    ]
    assert Task.objects.filter(trigger="cron").count() == 1
    assert audit.verify().problem == ""


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("cron", "*/0 * * * *", "minute &#x27;*/0&#x27; is not valid"),
        ("cron", "0 0 31 2 *", "never comes"),
        ("cron", "", "This field is required"),
        ("cron", "  ", "Write five fields"),
        ("time_zone", "", "This field is required"),
        ("cron", "1," * 600, "at most"),
        ("time_zone", "Mars/Base", "is not a time zone"),
        ("mode", "free", "Select a valid choice"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_in_words(admin, house, field, value, told):
    body = schedule_form(house, **{field: value})
    assert told in text(admin.post(reverse("admin:tasks_schedule_add"), body))
    assert not Schedule.objects.exists()


def test_a_schedule_for_somebody_who_may_not_work_there_is_refused(admin, house):
    body = schedule_form(house, owner=house.vera.pk)
    page = text(admin.post(reverse("admin:tasks_schedule_add"), body))
    assert "may not work in this workspace" in page


def test_what_a_schedule_needs_is_marked_as_required(admin):
    page = text(admin.get(reverse("admin:tasks_schedule_add")))
    marked = re.findall(r'<label class="required" for="id_(\w+)"', page)
    assert marked == ["name", "owner", "workspace", "goal", "cron", "time_zone"]
