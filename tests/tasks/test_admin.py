"""The admin: a readable log, decisions by the same function as the API, evidence that stays."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from agent import events as ev
from agent.messages import Usage
from tasks import access, audit, events
from tasks.admin.entries import _SAYINGS
from tasks.admin.policy import PLAIN_NAMES, UNSEEN
from tasks.conf import Conf, conf
from tasks.models import (
    ApiToken,
    Approval,
    Artifact,
    AuditEntry,
    Member,
    PolicyRule,
    Schedule,
    Session,
    Task,
    TaskEvent,
    Workspace,
)
from tasks.writer import writer
from tests.support.people import House, make_approval, make_house, see
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
"""For what goes through the writer's thread."""

HOSTILE = json.loads((Path(__file__).parent / "data" / "hostile_texts.json").read_text())
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n hello\n-the old price\n+the new price\n"


@pytest.fixture(autouse=True)
def stopped_writer() -> Iterator[None]:
    yield
    writer.stop()


@pytest.fixture
def admin() -> Client:
    return signed_in(make_user("admin", is_staff=True, is_superuser=True))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def staff(name: str, *permissions: str) -> User:
    user = make_user(name, is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=permissions))
    return user


def url(row: Any, page: str = "change") -> str:
    return reverse(f"admin:tasks_{row._meta.model_name}_{page}", args=[row.pk])


def listing(model: Any) -> str:
    return reverse(f"admin:tasks_{model._meta.model_name}_changelist")


def append(task: Task, *happened: ev.StoredEvent) -> None:
    """As a command, in the test's transaction or in the writer's."""
    command = partial(events.append, task.pk, happened)
    if connection.in_atomic_block:
        command()
    else:
        writer.run_sync(command)
    task.refresh_from_db()


def text(page: Any) -> str:
    assert page.status_code == 200, page.status_code
    return str(page.content.decode())


def a_story(task: Task, word: str = "report.md") -> None:
    """One of every kind of stored event, each with `word` wherever somebody's text can be."""
    call: dict[str, Any] = {"step": 1, "tool_call_id": "c1"}
    asked: dict[str, Any] = {"name": "write_file", "capability": "file:write", "risk": "medium"}
    approval = make_approval(task, arguments={"path": word}, diff=DIFF, tool_call_id="c9")
    append(
        task,
        ev.TaskCreated(goal=word, session_id=str(task.session_id), trigger="chat"),
        ev.TaskStarted(run=1, reason="start", model=word, limits={"steps": 12}, mode="ask"),
        ev.ModelCallStarted(step=1, model=word, attempt=1),
        ev.ReasoningMessage(step=1, block_id="r", text=word),
        ev.AssistantMessageAdded(step=1, block_id="b", text=word),
        ev.ToolCallRequested(
            **call,
            **asked,
            block_id="t",
            index=0,
            arguments={"path": word, word: word},
            decision="ask",
            rule=word,
            chain=[word, "default: file:write asks"],
        ),
        ev.ToolCallRequested(
            step=1,
            tool_call_id="c2",
            block_id="t",
            index=1,
            name=word,
            arguments=None,
            raw_arguments=word,
            problem=word,
            capability="",
            risk="low",
            decision="deny",
            rule=word,
        ),
        ev.ToolCallRequested(
            step=1,
            tool_call_id="c3",
            block_id="t",
            index=2,
            name=word,
            arguments={word: word},
            capability=word,
            risk="low",
            decision="deny",
            rule=word,
        ),
        ev.ModelCallFinished(
            step=1,
            finish_reason=word,
            usage=Usage(input_tokens=12, output_tokens=3),
            cost=0.25,
            duration_ms=1200,
        ),
        ev.ApprovalRequired(
            **call,
            **asked,
            kind="call",
            arguments={"path": word},
            reason=word,
            rule=word,
            diff=DIFF.replace("price", word.replace("\n", " ")),
            options=[],
            arguments_digest="9f2c" * 16,
            target_digest="ab" * 32,
            approval_id=str(approval.pk),
            expires_at="2026-05-04T12:30:00.000Z",
        ),
        ev.UserMessageAdded(message_id="m", text=word, by=word),
        ev.ApprovalResolved(
            approval_id=str(approval.pk),
            kind="call",
            tool_call_id="c1",
            status="approved",
            edited_arguments={"path": word},
            diff=DIFF,
            resolved_by=word,
            comment=word,
        ),
        ev.TaskRecovered(reason=word, previous_worker=word),
        ev.ToolCallStarted(**call),
        ev.ToolCallFinished(
            **call, ok=True, content=word, details={"sha256": "cd" * 32, word: word}, duration_ms=20
        ),
        ev.ToolCallFinished(step=1, tool_call_id="c2", ok=False, content=word),
        ev.ArtifactRecorded(artifact_id="a", path=word, size=1204, sha256="cd" * 32),
        ev.ModelCallRetried(
            step=2, attempt=1, error=ev.ErrorInfo(code="x", message=word), delay_seconds=2
        ),
        ev.ContextCompacted(step=2, from_sequence=1, to_sequence=4, summary=word),
        ev.BudgetWarning(step=2, which="steps", used=10, limit=12),
        ev.BudgetExceeded(which="steps", used=12, limit=12, message=word),
        ev.TaskCancelled(by=word),
        ev.AgentCompleted(final_answer=word),
        ev.TaskFailed(error=ev.ErrorInfo(code="x", message=word, hint=word)),
        ev.TaskCompleted(),
    )


# ── the log ───────────────────────────────────────────────────────────────────────────────────


def test_the_log_reads_like_a_story(admin):
    task = make_task()
    a_story(task)
    page = text(admin.get(url(task)))
    for sentence in (
        f"{task.created_by.username} asked, from the chat page",
        "Run 1 started with <code>report.md</code>",
        "Asked: write <code>report.md</code>",
        "report.md approved once, with an edit: write <code>report.md</code>",
        "Wrote <code>report.md</code>, 0.02 s",
        "Blocked: call <code>report.md</code>",
        "Model call, step 1: 1.2 s, 12 tokens in, 3 tokens out, cost 0.2500",
        "Completed",
    ):
        assert sentence in page


@pytest.mark.parametrize("status", ["approved", "rejected"])
def test_the_log_says_how_far_an_answer_reaches(admin, status):
    task = make_task()
    approval = make_approval(task, arguments={"path": "a.md"}, diff="", tool_call_id="c1")
    append(
        task,
        ev.ApprovalResolved(
            approval_id=str(approval.pk),
            kind="call",
            tool_call_id="c1",
            status=status,
            resolved_by="alice",
            scope="session",
        ),
    )
    assert f"alice {status} for this session" in text(admin.get(url(task)))


def test_every_event_is_on_the_page_with_its_hash(admin):
    task = make_task()
    a_story(task)
    page = text(admin.get(url(task)))
    for row in events.page(task.pk):
        assert f'id="e{row.sequence}"' in page
        assert f'title="{row.hash}"' in page


def test_every_kind_of_event_has_words():
    assert set(_SAYINGS) == set(ev.StoredEvent.__args__)


def test_an_ask_carries_its_diff_with_the_changed_words_marked(admin):
    task = make_task()
    a_story(task)
    page = text(admin.get(url(task)))
    assert "<del>old</del>" in page
    assert "<ins>new</ins>" in page


def test_people_are_shaded(admin):
    task = make_task()
    a_story(task)
    page = text(admin.get(url(task)))
    shaded = {int(number) for number in re.findall(r'id="e(\d+)" class="person"', page)}
    kinds = {row.type for row in events.page(task.pk) if row.sequence in shaded}
    assert kinds == {"task_created", "user_message", "approval_required", "approval_resolved"}


def test_the_log_can_be_narrowed(admin):
    task = make_task()
    a_story(task)
    wanted = {
        "decisions": {"approval_required", "approval_resolved", "user_message"},
        "trouble": {
            "tool_call_requested",
            "tool_call_finished",
            "task_recovered",
            "model_call_retried",
            "budget_warning",
            "budget_exceeded",
            "task_cancelled",
            "task_failed",
        },
    }
    by_sequence = {row.sequence: row.type for row in events.page(task.pk)}
    for show, types in wanted.items():
        page = text(admin.get(url(task), {"show": show}))
        assert {by_sequence[int(n)] for n in re.findall(r'id="e(\d+)"', page)} == types
        assert 'aria-current="true">' + show.capitalize() in page
    assert 'id="e1"' in text(admin.get(url(task), {"show": "nonsense"}))


def test_older_pages_join_without_a_gap(admin):
    task = make_task()
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    append(task, *[warning] * 450)
    seen: list[int] = []
    address = url(task)
    while address:
        page = text(admin.get(address))
        seen = [*map(int, re.findall(r'id="e(\d+)"', page)), *seen]
        older = re.search(r'rel="prev" href="([^"#]*)', page)
        address = url(task) + older[1].replace("&amp;", "&") if older else ""
    assert seen == list(range(1, 451))


@pytest.mark.parametrize("before", ["0", "1", "-5", "x", "9" * 30, "99999", "²"])
def test_odd_page_numbers_are_no_errors(admin, before):
    task = make_task()
    a_story(task)
    for show in ("", "model"):
        assert admin.get(url(task), {"before": before, "show": show}).status_code == 200


def test_a_page_that_begins_after_a_call_still_names_it(admin):
    task = make_task()
    call: dict[str, Any] = {"step": 1, "tool_call_id": "c1"}
    asked = ev.ToolCallRequested(
        **call,
        block_id="b",
        index=0,
        name="read_file",
        arguments={"path": "far.txt"},
        capability="file:read",
        risk="low",
        decision="allow",
        rule="default",
    )
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    done = ev.ToolCallFinished(**call, ok=False, content="no")
    append(task, asked)
    append(task, *[warning] * 199)
    append(task, done)
    assert "Not done: read <code>far.txt</code>" in text(admin.get(url(task)))
    assert "Not done: read <code>far.txt</code>" in text(admin.get(url(task), {"show": "trouble"}))


def test_an_event_that_somebody_garbled_does_not_hide_the_others(admin):
    task = make_task()
    a_story(task)
    TaskEvent.objects.filter(task=task, sequence=2).update(payload="{}")
    TaskEvent.objects.filter(task=task, sequence=3).update(type="nonsense")
    page = text(admin.get(url(task)))
    assert page.count("This event cannot be read") == 2
    assert 'id="e25"' in page


# ── the chain ─────────────────────────────────────────────────────────────────────────────────


def test_the_chain_is_checked_on_demand(admin):
    task = make_task()
    a_story(task)
    assert "Chain not checked yet: 25 events" in text(admin.get(url(task)))
    assert admin.get(url(task, "check")).status_code == 302
    assert "Chain not checked yet" in text(admin.get(url(task)))
    page = text(admin.post(url(task, "check"), follow=True))
    assert "Chain whole: 25 of 25 events, head" in page
    TaskEvent.objects.filter(task=task, sequence=12).update(payload='{"forged":true}')
    page = text(admin.post(url(task, "check"), follow=True))
    assert "sequence 12 does not match its hash. Everything from event 12 on is unproven" in page


@committed
async def test_the_export_can_be_checked_by_an_outsider():
    """With the key and nothing of ours: the payload stands in the line as it was hashed."""
    user = await sync_to_async(make_user)("admin", is_staff=True, is_superuser=True)
    task = await sync_to_async(make_task)()
    await sync_to_async(a_story)(task)
    client = AsyncClient()
    await sync_to_async(client.force_login)(user)
    answer: Any = await client.get(url(task, "export"))
    body = b"".join([piece async for piece in answer.streaming_content]).decode()
    assert f"task-{task.pk}.jsonl" in answer["Content-Disposition"]
    previous, lines = "0" * 64, body.splitlines()
    assert len(lines) == 25
    for line in lines:
        told = json.loads(line)
        payload = line[line.index('"payload":') + 10 : line.rindex(',"hash":')]
        record = (
            f'["{told["task_id"]}",{told["sequence"]},"{told["type"]}",'
            f'"{told["created_at"]}",{payload}]'
        )
        key = conf().audit_key
        digest = hmac.digest(key, (previous + record).encode(), "sha256").hex()
        assert digest == told["hash"]
        previous = digest
    await task.arefresh_from_db()
    assert previous == task.last_hash


# ── decisions ─────────────────────────────────────────────────────────────────────────────────


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


@committed
def test_an_approval_in_the_admin_is_the_same_decision(admin, house):
    append(house.task, ev.TaskCreated(goal="g", session_id=str(house.session.pk), trigger="api"))
    reply = {"decision": "reject", "comment": "Not this file."}
    page = text(admin.post(url(house.approval, "decide"), reply, follow=True))
    assert "It is rejected" in page
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
    assert "It is approved" in page


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
    assert "It is approved" in text(admin.post(url(house.approval, "decide"), reply, follow=True))
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
    assert "It is approved" in text(admin.post(url(house.approval, "decide"), reply, follow=True))
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


# ── evidence stays ────────────────────────────────────────────────────────────────────────────

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


# ── what may be changed ───────────────────────────────────────────────────────────────────────

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
    assert "skipped: The last task is not finished" in text(admin.get(listing(Schedule)))
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
        ("cron", "", "Write five fields"),
        ("cron", "1," * 600, "at most"),
        ("time_zone", "Mars/Base", "is not a time zone"),
        ("time_zone", "", "is not a time zone"),
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


# ── pages to look at ──────────────────────────────────────────────────────────────────────────


def test_the_policy_in_force_says_where_it_comes_from(admin, settings):
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE,
        unattended_mode="read_only",
        llm_api_key="sk-very-secret",
        secrets_key=b"sealing-key",
        signing_key=b"signing-seed",
        redis_url="redis://:redis-password@cache.example/0",
        notify_key=b"webhook-key",
        notify_url="https://hooks.example/a-secret-path",
        variables={"OTHER_API_KEY": "sk-other"},
        given=frozenset({"PILOTHOUSE_UNATTENDED_MODE", "PILOTHOUSE_LLM_API_KEY"}),
    )
    page = text(admin.get(reverse("admin:tasks_approval_policy")))
    secrets = ("sk-very-secret", "sealing-key", "signing-seed", "redis-password", "webhook-key")
    for secret in (*secrets, "sk-other", "a-secret-path"):
        assert secret not in page
    for field in fields(Conf):
        shown = f"{PLAIN_NAMES.get(field.name, f'PILOTHOUSE_{field.name.upper()}')}<" in page
        assert shown != (field.name in UNSEEN), field.name
    assert settings.PILOTHOUSE.audit_key.decode() not in page
    row = re.search(r"PILOTHOUSE_UNATTENDED_MODE.*?</tr>", page, re.S)
    assert row is not None
    assert "read_only" in row[0]
    assert "environment or .env" in row[0]
    row = re.search(r"PILOTHOUSE_MAX_AGENT_STEPS.*?</tr>", page, re.S)
    assert row is not None
    assert "<td>default</td>" in row[0]
    row = re.search(r"<code>write_file</code>.*?</tr>", page, re.S)
    assert row is not None
    assert re.findall(r'class="is-(\w+)"', row[0]) == ["ask", "deny"]


def test_the_audit_page_checks_its_own_chain(admin, house):
    access.issue_token(house.alice, "t")
    assert "Chain not checked yet" in text(admin.get(listing(AuditEntry)))
    check = reverse("admin:tasks_auditentry_check")
    assert "Chain whole: " in text(admin.post(check, follow=True))
    AuditEntry.objects.filter(sequence=1).update(by="mallory", details="no json")
    assert "entry 1 does not match its hash" in text(admin.post(check, follow=True))
    assert "cannot be read" in text(admin.get(url(AuditEntry.objects.get(sequence=1))))


# ── everything is escaped ─────────────────────────────────────────────────────────────────────

PLACES = [Task, Approval, Session, Artifact, Workspace, Schedule, ApiToken, AuditEntry, User]
ACTIVE = re.compile(
    r"<(script|iframe|svg/onload|math|style|form action=/api|details open ontoggle)\b[^>]*>"
)


@pytest.mark.parametrize("word", HOSTILE)
def test_nothing_that_people_or_models_write_becomes_markup(admin, word, tmp_path):
    alice = make_user(word[:150], is_staff=True)
    workspace = make_workspace(alice, name=word[:100], instructions=word)
    session = make_session(workspace, title=word)
    task = make_task(
        session,
        goal=word,
        status="failed",
        error={"code": "x", "message": word},
        final_answer=word,
        lease_worker=word,
    )
    a_story(task, word)
    Artifact.objects.create(task=task, path=word, size=1, sha256=word[:64], media_type=word[:100])
    approval = Approval.objects.get()
    Approval.objects.update(
        tool=word[:100], reason=word, rule=word, comment=word, diff=DIFF + f"+{word}\n"
    )
    schedule = Schedule.objects.create(
        name=word[:100], goal=word, owner=alice, workspace=workspace, paused_reason=word, cron="x"
    )
    schedule.ticks.create(due_at=timezone.now(), outcome="skipped", reason=word)
    access.issue_token(alice, word[:100])
    audit.note(audit.Change(action=word[:64], by=word, object_type="x", name=word, note=word))
    pages = [url(row) for row in (task, approval, session, workspace, schedule)]
    pages += [url(Artifact.objects.get()), url(ApiToken.objects.get())]
    pages += [url(entry) for entry in AuditEntry.objects.filter(by__startswith=word[:20])[:1]]
    pages += [listing(model) for model in PLACES if model is not User]
    pages += [reverse("admin:tasks_schedule_delete", args=[schedule.pk])]
    pages += [reverse("admin:tasks_task_history", args=[task.pk]), reverse("admin:index")]
    for address in pages:
        page = text(admin.get(address))
        assert word not in page or ("<" not in word and '"' not in word), address
        for tag in ACTIVE.findall(page):
            assert tag == "script"
        for opening in re.findall(r"<script[^>]*>[^<]*", page):
            assert re.fullmatch(r"<script\s[^>]*(src|type)=[^>]*>\s*", opening), opening
        assert not re.search(r"<[^>]* on\w+=[^>]*>", re.sub(r'"[^"]*"', '""', page)), address


def test_hidden_characters_are_written_out(admin):
    task = make_task(goal="safe\u202etxt.exe")
    a_story(task, "a\u202eb.txt")
    page = text(admin.get(url(task)))
    assert (
        "\u202e" not in page.partition("<h1>")[2].partition("</ol>")[0].partition('id="the-log"')[2]
    )
    assert "a&lt;202E&gt;b.txt" in page


# ── fast ──────────────────────────────────────────────────────────────────────────────────────


def queries(client: Client, address: str, **options: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        assert client.get(address, **options).status_code == 200
    return [query["sql"] for query in captured]


def many(count: int) -> Task:
    """A house with `count` tasks, approvals and artifacts, and one task with `count` events."""
    session = make_session()
    tasks = [make_task(session, goal=f"task {number}") for number in range(count)]
    for number, task in enumerate(tasks):
        make_approval(task, tool_call_id=f"c{number}")
        Artifact.objects.create(task=task, path="a", size=1, sha256="0", media_type="text/plain")
        owner = make_user()
        workspace = make_workspace(owner)
        Schedule.objects.create(
            name="s", owner=owner, workspace=workspace, cron="0 7 * * *", goal="g"
        )
        make_session(workspace)
        access.issue_token(owner, "t")
    a_story(tasks[0])
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    append(tasks[0], *[warning] * count)
    tasks[0].refresh_from_db()
    return tasks[0]


LISTED = (Task, Approval, Session, Artifact, Workspace, Schedule, ApiToken, AuditEntry)


def test_lists_ask_as_many_questions_for_many_rows_as_for_few(admin):
    many(2)
    few = {model: len(queries(admin, listing(model))) for model in LISTED}
    many(20)
    for model in LISTED:
        asked = queries(admin, listing(model))
        assert len(asked) <= few[model], model
        assert len(asked) <= 16, model


def test_no_list_touches_the_event_table(admin):
    many(3)
    for model in LISTED:
        for address in (listing(model), listing(model) + "?q=task"):
            assert not [sql for sql in queries(admin, address) if "tasks_taskevent" in sql]


def test_the_page_of_a_long_log_asks_as_little_as_that_of_a_short_one(admin):
    long = many(3)
    short = make_task(long.session)
    a_story(short)
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    for _ in range(3):
        append(long, *[warning] * 2000)
    asked, few = queries(admin, url(long)), queries(admin, url(short))
    assert len(asked) <= len(few) + 1  # and a look back for the names of its calls
    of_events = [sql for sql in asked if "tasks_taskevent" in sql]
    assert len(of_events) <= 2
    assert not [sql for sql in of_events if "COUNT" in sql]


def test_searching_for_an_id_finds_one_row(admin, house):
    page = text(admin.get(listing(Task), {"q": str(house.task.pk)}))
    assert "1 result" in page
    assert "0 results" in text(admin.get(listing(Task), {"q": str(house.approval.pk)}))
    assert admin.get(listing(Task), {"created_at__year": "2026"}).status_code == 200
    old = timezone.now() - timedelta(days=400)
    Task.objects.filter(pk=house.task.pk).update(created_at=old)
    assert str(old.year) in text(admin.get(listing(Task)))


@pytest.mark.long
def test_a_hundred_thousand_events_cost_no_more_questions(admin):
    task = make_task()
    a_story(task)
    warning = ev.BudgetWarning(step=1, which="steps", used=1, limit=12)
    for _ in range(50):
        append(task, *[warning] * 2000)
    for address in (url(task), f"{url(task)}?before=50000", f"{url(task)}?show=decisions"):
        of_events = [sql for sql in queries(admin, address) if "tasks_taskevent" in sql]
        assert 1 <= len(of_events) <= 2
        assert not [sql for sql in of_events if "COUNT" in sql]
    for model in LISTED:
        assert not [sql for sql in queries(admin, listing(model)) if "tasks_taskevent" in sql]
    page = text(admin.post(url(task, "check"), follow=True))
    assert "Chain whole: 100025 of 100025 events" in page
