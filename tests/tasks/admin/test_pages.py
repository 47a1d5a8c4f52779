"""Pages to look at: the policy in force, the audit; whatever somebody writes, it stays text."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from tasks import access, audit
from tasks.admin import approvals, tasks
from tasks.admin.policy import PLAIN_NAMES, UNSEEN
from tasks.conf import Conf
from tasks.models import (
    ApiToken,
    Approval,
    Artifact,
    AuditEntry,
    Schedule,
    Session,
    Task,
    Webhook,
    Workspace,
)
from tests.support.admin import DIFF, a_story, listing, text, url
from tests.support.people import make_approval
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db


def test_the_policy_in_force_says_where_it_comes_from(admin, settings):
    settings.PILOTHOUSE = replace(
        settings.PILOTHOUSE,
        unattended_mode="read_only",
        llm_api_key="sk-very-secret",
        llm_base_url="https://me:basic-password@models.example/v1?api_key=query-key",
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
    for secret in (*secrets, "sk-other", "a-secret-path", "basic-password", "query-key"):
        assert secret not in page
    assert "models.example/v1" in page
    for field in fields(Conf):
        shown = f"{PLAIN_NAMES.get(field.name, f'PILOTHOUSE_{field.name.upper()}')}<" in page
        assert shown != (field.name in UNSEEN), field.name
    assert settings.PILOTHOUSE.audit_key.decode() not in page
    assert re.search(r"PILOTHOUSE_MAX_TASK_COST<.*?no limit", page, re.S)
    assert re.search(r"PILOTHOUSE_SKILLS_DIR<[^P]*not set", page)
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


def test_filters_offer_the_entrances_that_there_are(admin, house):
    for lists, parameter in (("task", "trigger"), ("approval", "task__trigger")):
        page = text(admin.get(reverse(f"admin:tasks_{lists}_changelist")))
        offered = re.findall(rf"[?&;]{parameter}__exact=(\w+)", page)
        assert offered == Task.Trigger.values, lists
        here = f"{parameter}__exact={house.task.trigger}"
        away = f"{parameter}__exact=cron"
        rows = [
            len(admin.get(f"/admin/tasks/{lists}/?{query}").context["cl"].result_list)
            for query in (here, away)
        ]
        assert rows[0] > rows[1] == 0, lists
    explain = text(admin.get(reverse("admin:tasks_policyrule_explain")))
    assert '<option value="webhook">' in explain


def test_filters_say_what_the_lists_say(admin):
    for lists, states in (("task", tasks.STATES), ("approval", approvals.STATES)):
        page = text(admin.get(reverse(f"admin:tasks_{lists}_changelist")))
        offered = re.findall(r'status__exact=(\w+)">\s*([^<]*?)\s*</a>', page)
        assert dict(offered) == {status: words for status, (_, _, words) in states.items()}


def test_the_audit_page_checks_its_own_chain(admin, house):
    access.issue_token(house.alice, "t")
    assert "Chain not checked yet" in text(admin.get(listing(AuditEntry)))
    check = reverse("admin:tasks_auditentry_check")
    assert "Chain whole: " in text(admin.post(check, follow=True))
    AuditEntry.objects.filter(sequence=1).update(by="mallory", details="no json")
    assert "entry 1 does not match its hash" in text(admin.post(check, follow=True))
    assert "cannot be read" in text(admin.get(url(AuditEntry.objects.get(sequence=1))))


HOSTILE = json.loads((Path(__file__).parents[1] / "data" / "hostile_texts.json").read_text())
PLACES = [Task, Approval, Session, Artifact, Workspace, Schedule, Webhook, ApiToken, AuditEntry]
ACTIVE = re.compile(
    r"<(script|iframe|svg/onload|math|style|form action=/api|details open ontoggle)\b[^>]*>"
)


def written(word: str, folder: Path) -> list[Any]:
    """Rows with `word` wherever somebody's text can be."""
    alice = make_user(word[:150], is_staff=True)
    workspace = make_workspace(alice, name=word[:100], root=folder, instructions=word)
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
    artifact = Artifact.objects.create(
        task=task, path=word, size=1, sha256=word[:64], media_type=word[:100]
    )
    approval = Approval.objects.get(task=task)
    Approval.objects.filter(pk=approval.pk).update(
        tool=word[:100], reason=word, rule=word, comment=word, diff=DIFF + f"+{word}\n"
    )
    schedule = Schedule.objects.create(
        name=word[:100], goal=word, owner=alice, workspace=workspace, paused_reason=word, cron="x"
    )
    schedule.ticks.create(due_at=timezone.now(), outcome="skipped", reason=word)
    webhook = Webhook.objects.create(
        name=word[:100], goal=word, owner=alice, workspace=workspace, paused_reason=word
    )
    webhook.deliveries.create(size=1, outcome="refused", reason=word, sender_id=word[:200])
    access.issue_token(alice, word[:100])
    audit.note(audit.Change(action=word[:64], by=word, object_type="x", name=word, note=word))
    token, entry = ApiToken.objects.get(user=alice), AuditEntry.objects.latest("sequence")
    return [task, approval, session, workspace, schedule, webhook, artifact, token, entry]


def stays_text(page: str, word: str) -> None:
    assert word not in page or ("<" not in word and '"' not in word)
    for tag in ACTIVE.findall(page):
        assert tag == "script"
    for opening in re.findall(r"<script[^>]*>[^<]*", page):
        assert re.fullmatch(r"<script\s[^>]*(src|type)=[^>]*>\s*", opening), opening
    assert not re.search(r"<[^>]* on\w+=[^>]*>", re.sub(r'"[^"]*"', '""', page))


@pytest.mark.parametrize("word", HOSTILE)
def test_nothing_that_people_or_models_write_becomes_markup(admin, word, tmp_path):
    rows = written(word, tmp_path)
    task, _, _, _, schedule, webhook, *_ = rows
    pages = [url(row) for row in rows]
    pages += [reverse("admin:tasks_schedule_delete", args=[schedule.pk])]
    pages += [reverse("admin:tasks_webhook_delete", args=[webhook.pk])]
    pages += [reverse("admin:tasks_task_history", args=[task.pk])]
    for address in pages:
        stays_text(text(admin.get(address)), word)


def test_nor_does_it_in_lists(admin, tmp_path):
    for number, word in enumerate(HOSTILE):
        written(word, tmp_path / str(number))
    for address in [*map(listing, PLACES), reverse("admin:index")]:
        page = text(admin.get(address))
        for word in HOSTILE:
            stays_text(page, word)


def test_hidden_characters_are_written_out(admin):
    task = make_task(goal="safe\u202etxt.exe")
    a_story(task, "a\u202eb.txt")
    page = text(admin.get(url(task)))
    assert (
        "\u202e" not in page.partition("<h1>")[2].partition("</ol>")[0].partition('id="the-log"')[2]
    )
    assert "a&lt;202E&gt;b.txt" in page


def test_what_an_approval_is_bound_to_is_cut_only_where_it_is_a_digest(admin):
    task = make_task(make_session(make_workspace(make_user("bound"))))
    digest = "0123456789abcdef" * 4
    bound = make_approval(task, arguments_digest=digest, target_digest="sandbox:bubblewrap")
    page = text(admin.get(url(bound)))
    assert "<code>0123 4567 … cdef</code>" in page
    assert "<code>sandbox:bubblewrap</code>" in page


def test_lists_say_the_time_by_the_day_of_24_hours(admin):
    make_task(make_session(make_workspace(make_user("clock"))))
    made = Task.objects.get().created_at
    assert f"{made.day} {made:%b %Y %H:%M}" in text(admin.get(listing(Task)))
