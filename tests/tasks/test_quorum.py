"""Who may say yes to a capability, how many must, and more time: demands of the settings."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.test import AsyncClient, Client
from django.urls import reverse
from django.utils import timezone

from tasks import access, quorum
from tasks.models import Approval, Member, Notice, PolicyRule, TaskEvent
from tests.support.api import code
from tests.support.people import (
    House,
    bearer,
    let_decide_everywhere,
    make_approval,
    principal,
)
from tests.support.rows import make_session, make_task, make_workspace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("seen")]


def demand(settings: Any, **demands: Any) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, **demands)


def resolve(user: User, approval: Approval, decision: str = "approve", **more: Any) -> Any:
    path = f"/api/approvals/{approval.id}/resolve"
    body = {"decision": decision, **more}
    return Client(headers=bearer(user)).post(path, body, content_type="application/json")


def payloads(type_: str) -> list[dict[str, Any]]:
    rows = TaskEvent.objects.filter(type=type_).order_by("sequence")
    return [json.loads(row.payload) for row in rows]


# ── two people ────────────────────────────────────────────────────────────────────────────────


def test_the_second_person_s_yes_counts(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("write",))

    first = resolve(house.alice, house.approval, comment="looks right")
    again = resolve(house.alice, house.approval, comment="looks right")

    assert (first.status_code, again.status_code) == (202, 202)
    card = first.json()["approval"]
    assert (card["status"], card["votes_needed"]) == ("pending", 2)
    assert [(vote["by"], vote["comment"]) for vote in card["votes"]] == [("alice", "looks right")]
    [noted] = payloads("approval_updated")
    assert (noted["approval_id"], noted["by"]) == (card["id"], "alice")
    assert [vote["by"] for vote in noted["votes"]] == ["alice"]
    assert not payloads("approval_resolved")

    assert resolve(house.dora, house.approval).json()["approval"]["status"] == "approved"
    [resolved] = payloads("approval_resolved")
    assert resolved["resolved_by"] == "dora"
    assert len(payloads("approval_updated")) == 1


@pytest.mark.parametrize("how", ["no approver any more", "deactivated"])
def test_the_vote_of_who_left_does_not_count(house: House, settings: Any, how: str) -> None:
    demand(settings, two_approvers=("write",))
    resolve(house.dora, house.approval)
    if how == "deactivated":
        User.objects.filter(pk=house.dora.pk).update(is_active=False)
    else:
        Member.objects.filter(user=house.dora).update(role="member")

    card = resolve(house.alice, house.approval).json()["approval"]
    assert (card["status"], [vote["by"] for vote in card["votes"]]) == ("pending", ["alice"])


def test_one_no_is_enough(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("file:write",))

    resolve(house.alice, house.approval)
    assert resolve(house.dora, house.approval, "reject").json()["approval"]["status"] == "rejected"


def test_yeses_to_different_things_do_not_add_up(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("write",))
    edited = {"path": "a.txt", "content": "hello, edited"}

    resolve(house.alice, house.approval, edited_arguments=edited)
    assert resolve(house.dora, house.approval).json()["approval"]["status"] == "pending"
    agreed = resolve(house.dora, house.approval, edited_arguments=edited).json()["approval"]
    assert agreed["status"] == "pending", (
        "alice's first yes was replaced by dora's to another thing"
    )
    agreed = resolve(house.alice, house.approval, edited_arguments=edited).json()["approval"]
    assert (agreed["status"], agreed["edited_arguments"]) == ("approved", edited)


def test_what_changed_between_two_yeses_is_asked_anew(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("write",))
    resolve(house.alice, house.approval)
    (Path(house.workspace.root) / "a.txt").write_text("somebody else\n")

    refused = resolve(house.dora, house.approval)

    assert code(refused) == (409, "stale")
    successor = Approval.objects.get(pk=refused.json()["error"]["details"]["approval_id"])
    assert successor.votes == []


def test_yeses_to_an_edit_do_not_add_up_when_its_target_changed(
    house: House, settings: Any
) -> None:
    demand(settings, two_approvers=("write",))
    edited = {"path": "b.txt", "content": "instead"}

    resolve(house.alice, house.approval, edited_arguments=edited)
    (Path(house.workspace.root) / "b.txt").write_text("somebody else\n")
    first = resolve(house.dora, house.approval, edited_arguments=edited).json()["approval"]
    assert first["status"] == "pending", "they saw two changes"
    both = resolve(house.alice, house.approval, edited_arguments=edited).json()["approval"]
    assert both["status"] == "approved"


async def test_one_person_s_yeses_at_once_are_one_vote(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("write",))
    token = await sync_to_async(bearer)(house.alice)
    path = f"/api/approvals/{house.approval.id}/resolve"
    body = {"decision": "approve"}

    await asyncio.gather(
        *(
            AsyncClient().post(path, body, content_type="application/json", headers=token)
            for _ in range(10)
        )
    )

    await house.approval.arefresh_from_db()
    assert (house.approval.status, len(house.approval.votes)) == ("pending", 1)


# ── another person ────────────────────────────────────────────────────────────────────────────


def test_who_asked_does_not_approve_but_may_reject(house: House, settings: Any) -> None:
    demand(settings, other_approver=("file:write",))

    assert code(resolve(house.alice, house.approval)) == (409, "own_request")
    [item] = Client(headers=bearer(house.alice)).get("/api/approvals").json()["items"]
    assert (item["can_decide"], item["can_approve"]) == (True, False)
    read = Client(headers=bearer(house.alice)).get(f"/api/approvals/{house.approval.pk}").json()
    assert (read["can_decide"], read["can_approve"]) == (True, False)
    assert read["demands"] == {"group": None, "another_person": True, "votes": 1}
    assert resolve(house.alice, house.approval, "reject").status_code == 202


def test_who_steered_somebody_else_s_task_asked_for_it_too(house: House, settings: Any) -> None:
    demand(settings, other_approver=("write",))
    forged = 'x","by":"charlie'
    for who, text in ((house.dora, "Write it"), (house.bob, forged)):
        told = Client(headers=bearer(who)).post(
            f"/api/tasks/{house.task.pk}/messages",
            {"text": text, "delivery": "steer"},
            content_type="application/json",
        )
        assert told.status_code == 202
    let_decide_everywhere(house.charlie)

    assert code(resolve(house.dora, house.approval)) == (409, "own_request")
    assert resolve(house.charlie, house.approval).status_code == 202, "nobody speaks for another"


def test_somebody_else_approves_it(house: House, settings: Any) -> None:
    demand(settings, other_approver=("write",))

    assert resolve(house.dora, house.approval).status_code == 202


def test_other_capabilities_are_as_before(house: House, settings: Any) -> None:
    demand(
        settings,
        other_approver=("execute",),
        two_approvers=("shell:write",),
        approver_groups={"network": "security"},
    )

    assert resolve(house.alice, house.approval).json()["approval"]["status"] == "approved"


# ── approver groups ───────────────────────────────────────────────────────────────────────────


@pytest.fixture
def editors(house: House, settings: Any) -> Group:
    demand(settings, approver_groups={"write": "editors", "shell:write": "operators"})
    group = Group.objects.create(name="editors")
    house.charlie.groups.add(group)
    return group


def test_only_the_group_approves(house: House, editors: Group) -> None:
    let_decide_everywhere(house.bob)
    for other in (house.alice, house.dora, house.bob):
        assert code(resolve(other, house.approval)) == (409, "not_an_approver")
    assert resolve(house.charlie, house.approval).json()["approval"]["status"] == "approved"


def test_the_group_reads_what_it_decides_and_nothing_more(house: House, editors: Group) -> None:
    quiet = make_task(house.session)
    away = make_session(make_workspace(house.bob))
    shell = make_approval(make_task(away), capability="shell:write", tool="run_command")
    who = principal(house.charlie)

    assert set(access.visible_approvals(who, access.APPROVERS)) == {house.approval}
    assert list(access.visible_tasks(who)) == [house.task]
    assert access.open_tasks(who) == [house.task]
    assert not access.visible_tasks(who, access.WRITERS).exists()
    assert not access.visible_sessions(who).exists()
    assert not access.visible_workspaces(who).exists()
    client = Client(headers=bearer(house.charlie))
    status = {
        path: client.get(path).status_code
        for path in (
            f"/api/tasks/{house.task.id}",
            f"/api/tasks/{quiet.id}",
            f"/api/tasks/{shell.task_id}",
            f"/api/approvals/{shell.id}",
            f"/api/sessions/{house.session.id}",
        )
    }
    assert list(status.values()) == [200, 404, 404, 404, 404]


def test_the_group_takes_back_what_it_decides(house: House, editors: Group) -> None:
    who = principal(house.charlie)
    assert access.may_take_back(house.task, "file:write", who)
    assert not access.may_take_back(house.task, "shell:write", who)
    assert not access.may_take_back(house.task, "file:write", principal(house.vera))


def test_one_row_is_judged_like_many_for_groups_too(house: House, editors: Group) -> None:
    for capability in ("file:write", "shell:write", "write", "file:read", "overwrite", ""):
        make_approval(make_task(house.session), capability=capability)
    who = principal(house.charlie)
    several = set(access.visible_approvals(who, access.APPROVERS))

    for row in Approval.objects.all():
        found = quorum.decided_by_group(row.capability, who.decides)
        assert found is (row in several), row.capability
    assert {row.capability for row in several} == {"file:write", "write"}


def test_the_page_says_what_a_group_lets_its_reader_decide(house: House, editors: Group) -> None:
    house.vera.groups.add(editors)
    client = Client()
    client.force_login(house.vera)
    page = client.get(f"/c/{house.session.pk}").content.decode()
    [boot] = re.findall(r'<script id="boot"[^>]*>(.*?)</script>', page)
    session = json.loads(boot)["session"]

    assert session["can_decide"] is False
    assert session["decides"] == {"write": True, "shell:write": False}


def test_the_group_takes_back_what_answers_to_its_cards_left(house: House, editors: Group) -> None:
    theirs, shell = (
        PolicyRule.objects.create(
            scope="workspace",
            workspace=house.workspace,
            decision="deny",
            capability=capability,
            made_by=house.charlie,
            made_from=house.approval,
        )
        for capability in ("file:write", "shell:write")
    )
    client = Client(headers=bearer(house.charlie))
    listed = client.get("/api/rules").json()["items"]

    assert [(item["id"], item["can_revoke"]) for item in listed] == [(str(theirs.pk), True)]
    assert client.delete(f"/api/rules/{shell.pk}").status_code == 404
    assert client.delete(f"/api/rules/{theirs.pk}").status_code == 204
    theirs.refresh_from_db()
    assert not theirs.enabled


def test_who_left_the_group_sees_nothing(house: House, editors: Group) -> None:
    house.charlie.groups.clear()

    assert not access.visible_approvals(principal(house.charlie)).exists()
    assert resolve(house.charlie, house.approval).status_code == 404


# ── more time ─────────────────────────────────────────────────────────────────────────────────


def snooze(user: User, approval: Approval, **body: Any) -> Any:
    path = f"/api/approvals/{approval.id}/snooze"
    return Client(headers=bearer(user)).post(path, body, content_type="application/json")


def test_more_time_is_in_the_log(house: House) -> None:
    answered = snooze(house.dora, house.approval, seconds=7200)

    assert answered.status_code == 202
    until = answered.json()["approval"]["expires_at"]
    [noted] = payloads("approval_updated")
    assert noted == {
        "approval_id": str(house.approval.id),
        "expires_at": until,
        "votes": [],
        "by": "dora",
    }
    house.approval.refresh_from_db()
    assert house.approval.expires_at is not None
    assert house.approval.expires_at > timezone.now() + timedelta(minutes=100)


def test_more_time_never_means_less(house: House) -> None:
    before = house.approval.expires_at
    assert snooze(house.alice, house.approval, seconds=5).status_code == 202
    house.approval.refresh_from_db()

    assert house.approval.expires_at == before
    assert not payloads("approval_updated")


def test_nothing_can_be_kept_alive_that_is_over(house: House) -> None:
    assert snooze(house.alice, house.approval, seconds=10**9).status_code == 400
    assert snooze(house.bob, house.approval, seconds=60).status_code == 404
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert code(snooze(house.alice, house.approval)) == (409, "expired")
    Approval.objects.update(status="rejected", resolved_by=house.dora, resolved_at=timezone.now())
    assert code(snooze(house.alice, house.approval)) == (409, "already_resolved")


# ── in the admin ──────────────────────────────────────────────────────────────────────────────


def test_the_admin_shows_who_said_yes_and_why(house: House, settings: Any) -> None:
    demand(settings, two_approvers=("write",))
    resolve(house.dora, house.approval, comment="<b>looks</b> right")
    admin = User.objects.create_superuser("admin", password=None)
    client = Client()
    client.force_login(admin)
    decide = reverse("admin:tasks_approval_decide", args=[house.approval.pk])
    page = client.get(reverse("admin:tasks_approval_change", args=[house.approval.pk]))
    log = client.get(reverse("admin:tasks_task_change", args=[house.task.pk]))

    for shown in (page.content.decode(), log.content.decode()):
        assert "dora" in shown
        assert "&lt;b&gt;looks&lt;/b&gt; right" in shown
        assert "<b>looks" not in shown
    client.post(decide, {"decision": "approve"})
    house.approval.refresh_from_db()
    assert (house.approval.status, house.approval.resolved_by) == ("approved", admin)


def test_the_admin_lists_what_was_sent(house: House, settings: Any) -> None:
    message = Notice.objects.create(
        approval=house.approval,
        channel="webhook",
        address="https://hooks.example",
        status="failed",
        error="It answered <500>.",
    )
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password=None))
    card = client.get(reverse("admin:tasks_approval_change", args=[house.approval.pk]))
    [path] = re.findall(r'href="(/admin/tasks/notice/\?[^"]+)"', card.content.decode())
    answer = client.get(path.replace("&amp;", "&"))
    assert answer.status_code == 200, "the card leads to what was sent about it"
    listed = answer.content.decode()
    page = client.get(reverse("admin:tasks_notice_change", args=[message.pk])).content.decode()

    assert "Given up" in listed
    assert "It answered &lt;500&gt;." in page


def test_the_admin_narrows_what_waits_by_where_it_comes_from(house: House) -> None:
    away = make_approval(make_task(make_session(make_workspace(house.bob)), trigger="cron"))
    client = Client()
    client.force_login(User.objects.create_superuser("admin", password=None))
    path = reverse("admin:tasks_approval_changelist")
    workspace = house.workspace.pk
    for query, row in (
        ("task__trigger__exact=cron", away),
        (f"workspace__id__exact={workspace}", house.approval),
    ):
        page = client.get(f"{path}?{query}")
        assert page.status_code == 200, query
        assert list(page.context["cl"].result_list) == [row]
