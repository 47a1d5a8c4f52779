"""Deciding in the admin is the same decision as by the API, and for the same people."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from agent import events as ev
from agent.toolbox import NOT_A_DIFF
from tasks import events
from tasks.models import Approval, AuditEntry, PolicyRule, Task
from tests.support.admin import DIFF, append, committed, listing, signed_in, staff, text, url
from tests.support.people import make_approval, see
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db


def test_pending_approvals_come_first_with_their_diff(admin, house):
    for number in range(3):
        make_approval(
            house.task, status="approved", tool_call_id=f"old-{number}", tool=f"t{number}"
        )
    page = text(admin.get(listing(Approval)))
    assert page.index("Waits for a person</span>") < page.index("#i-check")
    Approval.objects.filter(pk=house.approval.pk).update(diff=DIFF)
    page = text(admin.get(url(house.approval)))
    assert page.index("What would change") < page.index("Approve once")
    assert "<ins>new</ins>" in page


def test_what_a_command_would_do_is_shown_whole_above_the_buttons(admin, house):
    """Also where a part of it looks like a diff."""
    line = "printf '@@ -1 +1 @@\n+harmless'; rm -rf build"
    approval = make_approval(
        house.task,
        tool_call_id="call-2",
        tool="run_command",
        capability="shell:execute",
        arguments={"command": line},
        diff=f"{NOT_A_DIFF} command\n{line}\n\n{NOT_A_DIFF} where\nsandbox: bubblewrap\n",
    )
    page = text(admin.get(reverse("admin:tasks_approval_change", args=[approval.pk])))
    shown = page[page.index("What would happen</h2>") : page.index(">Decide</h2>")]
    for words in ("@@ -1 +1 @@", "+harmless", "rm -rf build", "sandbox: bubblewrap"):
        assert words in shown
    assert "What would change" not in page
    lists = text(admin.get(reverse("admin:tasks_approval_changelist")))
    assert re.search(r"Run <code>printf .*rm -rf build</code>", lists, re.S)


@committed
def test_an_approval_in_the_admin_is_the_same_decision(admin, house):
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    reply = {"decision": "reject", "comment": "Not this file."}
    page = text(admin.post(url(house.approval, "decide"), reply, follow=True))
    assert "Rejected. The task goes on" in page
    assert "Approve once" not in page
    house.approval.refresh_from_db()
    assert (house.approval.status, house.approval.comment) == ("rejected", "Not this file.")
    assert house.approval.resolved_by is not None
    assert house.approval.resolved_by.username == "admin"
    assert events.page(house.task.pk)[-1].type == "approval_resolved"
    again = text(admin.post(url(house.approval, "decide"), {"decision": "approve"}, follow=True))
    assert "It was rejected before your answer by admin" in again


@committed
def test_approving_is_held_against_the_world_as_it_is(admin, house):
    """The file that the question was about has changed: it is asked anew, and the page says so."""
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    Approval.objects.filter(pk=house.approval.pk).update(target_digest="0" * 64)
    page = text(admin.post(url(house.approval, "decide"), {"decision": "approve"}, follow=True))
    assert "It is asked again with the change as it is now" in page
    house.approval.refresh_from_db()
    assert house.approval.status == "stale"
    assert str(house.approval.replaced_by_id) in page
    reply = {"decision": "approve"}
    assert house.approval.replaced_by is not None
    page = text(admin.post(url(house.approval.replaced_by, "decide"), reply, follow=True))
    assert "Approved. The task goes on" in page


@committed
def test_nonsense_is_refused_and_it_stays_pending(admin, house):
    page = text(admin.post(url(house.approval, "decide"), {"decision": "maybe"}, follow=True))
    assert "Decision must be approve or reject" in page
    assert admin.get(url(house.approval, "decide")).status_code == 405
    house.approval.refresh_from_db()
    assert house.approval.status == "pending"


@committed
def test_an_answer_may_count_for_more_than_one_call(admin, house):
    told = {"scopes": ["once", "task", "session", "always"], "standing": "write_file on a.txt"}
    Approval.objects.filter(pk=house.approval.pk).update(**told)
    assert "this task: write_file on a.txt" in text(admin.get(url(house.approval)))
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    see(house.approval)
    Approval.objects.filter(pk=house.approval.pk).update(**told)
    reply = {"decision": "approve", "scope": "session"}
    assert "Approved. The task goes on" in text(
        admin.post(url(house.approval, "decide"), reply, follow=True)
    )
    rule = PolicyRule.objects.get()
    assert (rule.scope, rule.path, rule.made_by.username) == ("session", "a.txt", "admin")


def test_an_unknown_effect_offers_its_three_answers(admin, house):
    Approval.objects.filter(pk=house.approval.pk).update(kind="unknown_effect")
    page = text(admin.get(url(house.approval)))
    for button in ("It is done, go on", "Run it again", "Give up this call"):
        assert button in page


@committed
def test_a_question_is_answered_in_words(admin, house):
    Approval.objects.filter(pk=house.approval.pk).update(kind="question", tool="ask_user")
    assert "Let it decide" in text(admin.get(url(house.approval)))
    reply = {"decision": "approve", "answer": "The second one"}
    assert "Approved. The task goes on" in text(
        admin.post(url(house.approval, "decide"), reply, follow=True)
    )
    house.approval.refresh_from_db()
    assert house.approval.answer == "The second one"


@committed
def test_looking_is_not_deciding(house):
    """Staff who may see approvals have no buttons, and no way around them."""
    client = signed_in(staff("stan", "view_approval", "change_approval"))
    assert "Approve once" not in text(client.get(url(house.approval)))
    page = text(client.post(url(house.approval, "decide"), {"decision": "reject"}, follow=True))
    assert "You may not decide this approval" in page
    house.approval.refresh_from_db()
    assert house.approval.status == "pending"


@committed
@pytest.mark.parametrize("who", ["dora", "deputy"])
def test_approvers_and_holders_of_the_permission_decide(house, who):
    if who == "deputy":
        user = staff("deputy", "view_approval", "resolve_approval")
    else:
        user = house.dora
        user.is_staff = True
        user.save()
        user.user_permissions.add(Permission.objects.get(codename="view_approval"))
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    client = signed_in(user)
    assert "Approve once" in text(client.get(url(house.approval)))
    client.post(url(house.approval, "decide"), {"decision": "reject"})
    house.approval.refresh_from_db()
    assert house.approval.status == "rejected"


@committed
def test_strangers_and_people_without_permission_see_nothing(house):
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    addresses = [
        url(house.task),
        url(house.task, "check"),
        url(house.task, "export"),
        url(house.approval),
        url(house.approval, "decide"),
        listing(AuditEntry),
    ]
    for client, status in ((signed_in(house.alice), 302), (signed_in(staff("stan")), 403)):
        for address in addresses:
            assert client.get(address).status_code in (status, 405)
            assert client.post(address).status_code == status
    house.approval.refresh_from_db()
    assert house.approval.status == "pending"


@committed
def test_a_foreign_page_cannot_decide(house):
    user = make_user("admin", is_staff=True, is_superuser=True)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    answer = client.post(url(house.approval, "decide"), {"decision": "reject"})
    assert answer.status_code == 403


def test_unknown_ids_are_not_found(admin):
    for model in (Task, Approval):
        for name in ("00000000-0000-0000-0000-000000000001", "nonsense"):
            for page in ("change", "check" if model is Task else "decide"):
                address = reverse(f"admin:tasks_{model._meta.model_name}_{page}", args=[name])
                assert admin.post(address).status_code == 404
