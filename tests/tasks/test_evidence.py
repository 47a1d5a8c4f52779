"""Whoever changes an approval behind the log's back is found: by verify_log, with raw SQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client

from agent.providers.scripted import ScriptedCall, Turn
from tasks import audit, evidence, service
from tasks.models import Approval, Task, TaskEvent
from tasks.writer import writer
from tests.support.rows import make_user
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)


def write(path: str, **more: Any) -> Turn:
    arguments = {"path": path, "content": "x", **more}
    return Turn(calls=(ScriptedCall(name="write_file", arguments=arguments),))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    yield await sync_to_async(make_house)(tmp_path / "desk")
    writer.stop()


@pytest.fixture
async def task_id(house: House) -> UUID:
    """Four approvals: rejected, edited, stale and its successor, which waits."""
    created = await house.ask()
    async with house.runner(write("one.txt"), write("two.txt"), write("a.txt")):
        for number in range(3):
            await house.until(created.task_id, "waiting_approval")
            asked = await house.pending(created.task_id)
            if number == 0:
                await house.reply(asked.pk, "reject", comment="No")
            elif number == 1:
                edited = {"path": "three.txt", "content": "edited"}
                await house.reply(asked.pk, edited_arguments=edited)
            else:
                (house.folder / "a.txt").write_text("changed meanwhile")
                with pytest.raises(Exception, match="changed after you were asked"):
                    await house.reply(asked.pk)
            if number < 2:
                await house.until(created.task_id, partial(_beyond, number + 1))
    return created.task_id


def _beyond(step: int, task: Task) -> bool:
    return task.steps > step


def verify() -> str:
    out = StringIO()
    call_command("verify_log", stdout=out)
    return out.getvalue()


def refused() -> str:
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("verify_log", stdout=out)
    return out.getvalue()


async def test_what_the_product_wrote_is_whole(task_id: UUID) -> None:
    statuses = Approval.objects.order_by("created_at").values_list("status", flat=True)
    assert [each async for each in statuses] == ["rejected", "approved", "stale", "pending"]
    assert "0 broken" in await sync_to_async(verify)()
    resolved = TaskEvent.objects.filter(task_id=task_id, type="approval_resolved")
    moments = {json.loads(row.payload)["approval_id"]: row.created_at async for row in resolved}
    rows = Approval.objects.exclude(status="pending")
    assert moments == {str(row.pk): row.resolved_at async for row in rows}


async def test_a_question_that_a_cancel_made_void_is_whole(house: House) -> None:
    async with house.runner(write("one.txt")):
        created = await house.ask()
        await house.until(created.task_id, "waiting_approval")
        await service.cancel(created.task_id, house.alice.pk)
    approval = await Approval.objects.aget()
    assert (approval.status, approval.resolved_at is None) == ("cancelled", False)
    assert "0 broken" in await sync_to_async(verify)()


def sql(statement: str, status: str) -> Callable[[], None]:
    def run() -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"UPDATE tasks_approval SET {statement} WHERE status = %s", [status])
            assert cursor.rowcount == 1

    return run


TAMPERINGS: dict[str, tuple[Callable[[], None], str]] = {
    "a no becomes a yes": (sql("status = 'approved'", "rejected"), "status differs"),
    "by somebody else": (sql("resolved_by_id = NULL", "rejected"), "resolved_by differs"),
    "another comment": (sql("comment = 'Fine'", "rejected"), "comment differs"),
    "at another time": (sql("resolved_at = '2020-01-01 00:00:00'", "rejected"), "resolved_at differs"),
    "asked at another time": (sql("created_at = '2020-01-01 00:00:00'", "rejected"), "created_at differs"),
    "wider scopes": (sql("scopes = '[\"always\"]'", "pending"), "scopes differs"),
    "another rule offered": (sql("standing = 'nothing'", "pending"), "standing differs"),
    "another scope": (sql("scope = 'always'", "approved"), "scope differs"),
    "other arguments": (sql("arguments = '{\"path\":\"x\"}'", "rejected"), "arguments differs"),
    "other edited ones": (sql("edited_arguments = NULL", "approved"), "edited_arguments differs"),
    "another diff": (sql("diff = 'harmless'", "approved"), "diff differs"),
    "another digest": (sql("arguments_digest = ''", "approved"), "arguments_digest differs"),
    "another tool": (sql("tool = 'read_file'", "pending"), "tool differs"),
    "another risk": (sql("risk = 'low'", "pending"), "risk differs"),
    "more time": (sql("expires_at = '2099-01-01 00:00:00'", "pending"), "expires_at differs"),
    "another successor": (sql("replaced_by_id = NULL", "stale"), "replaced_by differs"),
    "answered without a word": (sql("status = 'approved'", "pending"), "status differs"),
    "an invented vote": (sql("votes = '[{\"by\":\"eve\"}]'", "pending"), "votes differs"),
}  # fmt: skip


async def test_an_edited_row_is_named(task_id: UUID) -> None:
    for tamper, said in TAMPERINGS.values():
        (found,) = await sync_to_async(tampered)(task_id, tamper)
        assert found.startswith("approval ")
        assert f": {said} from the log, sequence " in found
    assert evidence_free(await sync_to_async(verify)())


def tampered(task_id: UUID, tamper: Callable[[], None]) -> list[str]:
    """What is found; then it is as it was."""
    with transaction.atomic():
        tamper()
        found = evidence.problems(task_id)
        transaction.set_rollback(True)
    return found


def evidence_free(output: str) -> bool:
    return "0 broken" in output and "approval" not in output


async def test_rows_that_were_deleted_or_invented_are_named(task_id: UUID) -> None:
    row = await Approval.objects.aget(status="rejected")
    await Approval.objects.filter(pk=row.pk).adelete()
    assert f"approval {row.pk} is missing; the log has it" in await sync_to_async(refused)()
    row.comment = "No"
    await row.asave(force_insert=True)
    assert "0 broken" in await sync_to_async(verify)()
    invented = Approval(task_id=task_id, kind="call", step=1, tool_call_id="c", arguments={})
    await invented.asave()
    assert f"approval {invented.pk} is not in the log" in await sync_to_async(refused)()


async def test_whoever_has_another_name_now_is_no_forgery(house: House, task_id: UUID) -> None:
    await User.objects.filter(pk=house.alice.pk).aupdate(username="alicia")
    assert "resolved_by differs" in await sync_to_async(refused)()
    renamed = audit.Change(
        action="user.changed",
        object_type="user",
        object_id=str(house.alice.pk),
        before={"username": "alice"},
        after={"username": "alicia"},
    )
    await sync_to_async(audit.note)(renamed)
    assert "0 broken" in await sync_to_async(verify)()


async def test_who_asked_for_a_task_is_in_its_log(house: House, task_id: UUID) -> None:
    """Somebody who did not ask may approve what who asked may not."""
    bob = await sync_to_async(make_user)("bob")
    await Task.objects.filter(pk=task_id).aupdate(created_by=bob)
    said = await sync_to_async(refused)()
    assert f"task {task_id}: bob asked for it, says its row; the log says alice" in said


async def test_a_broken_chain_is_said_first(task_id: UUID) -> None:
    await sync_to_async(sql("status = 'approved'", "rejected"))()
    await TaskEvent.objects.filter(task_id=task_id, sequence=3).aupdate(payload="{}")
    found = await sync_to_async(refused)()
    assert "sequence 3 does not match its hash" in found
    assert "approval" not in found


async def test_the_admin_s_check_says_it_too(task_id: UUID) -> None:
    def check() -> str:
        client = Client()
        client.force_login(make_user("admin", is_staff=True, is_superuser=True))
        page = client.post(f"/admin/tasks/task/{task_id}/check/", follow=True)
        return page.content.decode()

    await sync_to_async(sql("comment = 'Fine'", "rejected"))()
    assert "But approval" in await sync_to_async(check)()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": [1, 2.0]}, {"a": [1.0, 2]}, True),
        ([1e23], [10**23], True),
        (True, 1, False),
        (1, True, False),
        (1.0, True, False),
        (10**400, 1e23, False),
        (10**20, 10**20 + 1, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ([1], [1, 2], False),
        ("1", 1, False),
        (None, None, True),
    ],
    ids=lambda value: str(value)[:20],
)
def test_equal_is_equal_as_json(one: Any, other: Any, same: bool) -> None:
    assert evidence._same(one, other) is same
