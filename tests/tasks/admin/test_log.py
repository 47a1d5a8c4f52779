"""The log of a task in the admin: a story to read, narrowed, in pages, and its chain checked."""

from __future__ import annotations

import hmac
import json
import re
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from agent import events as ev
from tasks import events
from tasks.admin.entries import _SAYINGS
from tasks.conf import conf
from tasks.models import TaskEvent
from tests.support.admin import a_story, append, committed, text, url
from tests.support.people import make_approval
from tests.support.rows import make_task, make_user

pytestmark = pytest.mark.django_db


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


def test_the_chain_is_checked_on_demand(admin):
    task = make_task()
    a_story(task)
    assert "Chain not checked yet: 25 events" in text(admin.get(url(task)))
    assert admin.get(url(task, "check")).status_code == 302
    assert "Chain not checked yet" in text(admin.get(url(task)))
    page = text(admin.post(url(task, "check"), follow=True))
    assert "Chain whole: 25 of 25 events, checked" in page
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
