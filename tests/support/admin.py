"""The admin as staff see it: who is signed in, where things are, and a task with one of every event."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.urls import reverse

from agent import events as ev
from agent.messages import Usage
from tasks import events
from tasks.models import Task
from tasks.writer import writer
from tests.support.people import make_approval
from tests.support.rows import make_user

committed = pytest.mark.django_db(transaction=True)
"""For what goes through the writer's thread."""
DIFF = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n hello\n-the old price\n+the new price\n"


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
