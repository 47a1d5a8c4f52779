"""A call that was cut off with its process: whoever ends the task says what it did."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from pytest_django import Settings

from agent import events as ev
from agent import manifest
from agent.spool import Spool
from agent.tools import unfinished
from agent.tools.alone import alone_now
from agent.workspace import Workspace
from tasks import events, keeping, service
from tasks.conf import conf
from tasks.models import Task
from tasks.writer import writer
from tests.support.rows import make_session, make_task
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

CALL: dict[str, Any] = {"step": 1, "tool_call_id": "c1"}


@pytest.fixture
def house(settings: Settings, tmp_path: Path) -> House:
    settings.PILOTHOUSE = replace(conf(), var_dir=tmp_path / "var")
    return make_house(tmp_path / "desk")


def cut_off(house: House) -> UUID:
    """A task whose server died while a command of it ran, which wrote into a.txt."""
    task = make_task(make_session(house.workspace), status="running", run=1)
    asked = ev.ToolCallRequested(
        **CALL,
        block_id="b",
        index=0,
        name="run_command",
        arguments={"command": "echo agent > a.txt"},
        capability="shell:execute",
        risk="high",
        decision="ask",
        rule="",
    )
    log: list[ev.StoredEvent] = [
        ev.TaskCreated(goal="g", session_id=str(task.session_id), trigger="api"),
        ev.TaskStarted(run=1, reason="start", model="m", limits={}, mode="ask"),
        ev.ModelCallStarted(step=1, model="m", attempt=1),
        asked,
        ev.ToolCallStarted(**CALL),
    ]
    writer.run_sync(lambda: events.append(task.pk, log))
    shelf = keeping.shelf_of(task.pk)
    assert shelf is not None
    spool = Spool(shelf)
    unfinished.begin("c1", manifest.take(Workspace(house.folder), spool=spool), spool)
    spool.leave()
    (house.folder / "a.txt").write_text("agent\n")
    return task.pk


async def result(house: House, task_id: UUID) -> ev.ToolCallFinished:
    rows = [row for row in await house.log(task_id) if row.type == "tool_call_finished"]
    found = events.typed(rows[-1])
    assert isinstance(found, ev.ToolCallFinished)
    return found


def says_what_it_did(finished: ev.ToolCallFinished) -> None:
    assert not finished.ok
    assert [each["path"] for each in finished.details["changes"]] == ["a.txt"]
    assert len(finished.details["undo"]["record"]) == 64


async def test_cancelling_what_nobody_runs_any_more_says_what_it_did(house: House) -> None:
    task_id = await sync_to_async(cut_off)(house)
    await service.cancel(task_id, house.alice.pk)
    says_what_it_did(await result(house, task_id))
    await house.check(task_id)


async def test_a_takeover_that_finds_a_wish_to_stop_says_what_it_did(house: House) -> None:
    task_id = await sync_to_async(cut_off)(house)
    later = timezone.now() + timedelta(seconds=600)
    await Task.objects.filter(pk=task_id).aupdate(lease_worker="other:1", lease_expires_at=later)
    await service.cancel(task_id, house.alice.pk)  # its server is asked, and dies
    await Task.objects.filter(pk=task_id).aupdate(lease_expires_at=None)
    async with house.runner():
        await house.until(task_id, "cancelled")
    says_what_it_did(await result(house, task_id))


@pytest.mark.parametrize("mode", ["ask", "deny"])
async def test_a_person_sees_what_it_did_and_whatever_they_say_it_is_told(
    house: House, settings: Settings, mode: str
) -> None:
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, mode=mode)
    task_id = await sync_to_async(cut_off)(house)
    async with house.runner() as runner:
        if mode == "ask":
            await house.until(task_id, "waiting_approval")
            asked = await house.pending(task_id)
            assert asked.kind == "unknown_effect"
            assert "── what it changed\n\n[Changed files:\n  changed a.txt, 6 bytes" in asked.diff
            await house.reply(asked.pk, "reject")
            runner.wake()
        await house.until(task_id, lambda task: task.status in Task.TERMINAL)
    finished = await result(house, task_id)
    says_what_it_did(finished)
    assert "changed a.txt, 6 bytes" in finished.content


async def test_while_a_command_runs_there_nobody_looks(house: House) -> None:
    """It may well be that one, of a server that lives."""
    task_id = await sync_to_async(cut_off)(house)
    with alone_now(house.folder):
        await service.cancel(task_id, house.alice.pk)
    assert (await result(house, task_id)).details == {}
