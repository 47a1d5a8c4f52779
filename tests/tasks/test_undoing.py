"""Undoing a call over the API: shown first, by who may decide, all or nothing, in the audit."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client
from pytest_django import Settings

from agent.providers.scripted import ScriptedCall, Turn
from agent.tools.alone import alone_now
from tasks import audit, events, keeping, pruning, undoing
from tasks.conf import conf
from tasks.errors import Conflict
from tasks.models import AuditEntry, Member, Session, Task
from tasks.undoing import Entry
from tests.support.people import bearer, let_decide_everywhere
from tests.support.rows import make_user
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _own_state(settings: Settings, tmp_path: Path) -> None:
    settings.PILOTHOUSE = replace(conf(), var_dir=tmp_path / "var")


@dataclass
class Desk:
    """A finished task of Alice's that wrote into a.txt and made new.txt."""

    house: House
    task_id: UUID
    written: list[int]
    """Sequences of its results."""

    @property
    def folder(self) -> Path:
        return self.house.folder

    def url(self, number: int = 0) -> str:
        return f"/api/tasks/{self.task_id}/events/{self.written[number]}/undo"

    async def see(self, user: User, number: int = 0) -> Any:
        headers = await sync_to_async(bearer)(user)
        return await AsyncClient().get(self.url(number), headers=headers)

    async def undo(self, user: User, digest: str | None = None, number: int = 0) -> Any:
        if digest is None:
            digest = (await self.see(user, number)).json().get("digest", "")
        headers = await sync_to_async(bearer)(user)
        return await AsyncClient().post(
            self.url(number),
            data={"digest": digest},
            content_type="application/json",
            headers=headers,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    house = make_house(tmp_path / "desk")
    (house.folder / "a.txt").chmod(0o640)
    return async_to_sync(finished)(house)


async def finished(house: House) -> Desk:
    writes = (
        ScriptedCall(name="write_file", arguments={"path": "a.txt", "content": "agent's\n"}),
        ScriptedCall(name="write_file", arguments={"path": "new.txt", "content": "new\n"}),
    )
    async with house.runner(Turn(calls=writes), Turn(text="Done.")):
        task_id = (await house.ask()).task_id
        await house.until(task_id, "waiting_approval")
        task = await Task.objects.aget(pk=task_id)
        async for approval in task.approvals.all():
            await house.reply(approval.pk)
        await house.until(task_id, "completed")
    rows = await house.log(task_id)
    written = [row.sequence for row in rows if row.type == "tool_call_finished"]
    return Desk(house=house, task_id=task_id, written=written)


def audited() -> list[tuple[str, str, dict[str, Any]]]:
    rows = AuditEntry.objects.filter(action__startswith="call.").order_by("sequence")
    names = ("event", "files", "lost")
    return [
        (row.action, row.by, dict(zip(names, audit.values_of(row, *names), strict=True)))
        for row in rows
    ]


async def test_it_is_shown_first_then_undone_and_audited(desk: Desk) -> None:
    alice = desk.house.alice
    seen = (await desk.see(alice)).json()
    assert (seen["state"], seen["can_undo"]) == ("possible", True)
    [file] = seen["files"]
    assert (file["path"], file["action"], file["before"]["mode"]) == ("a.txt", "restore", "640")
    assert "-agent's" in file["diff"]
    assert "+AAA" in file["diff"]
    assert (desk.folder / "a.txt").read_text() == "agent's\n"

    done = await desk.undo(alice)
    assert (done.status_code, done.json()["state"]) == (200, "undone")
    assert done.json()["undone_by"] == "alice"
    assert (desk.folder / "a.txt").read_text() == "AAA"
    assert (desk.folder / "a.txt").stat().st_mode & 0o777 == 0o640
    assert (desk.folder / "new.txt").exists()  # another call's
    [made] = (await desk.see(alice, 1)).json()["files"]
    assert (made["before"], made["after"]["mode"]) == (None, None)
    told = {"event": desk.written[0], "files": 1, "lost": 0}
    assert await sync_to_async(audited)() == [
        ("call.undo_begun", "alice", told),
        ("call.undone", "alice", told),
    ]
    assert not (await sync_to_async(audit.verify)()).problem
    await desk.house.check(desk.task_id)


async def test_a_created_file_is_removed(desk: Desk) -> None:
    [file] = (await desk.see(desk.house.alice, 1)).json()["files"]
    assert (file["action"], file["before"]) == ("remove", None)
    assert (await desk.undo(desk.house.alice, number=1)).status_code == 200
    assert not (desk.folder / "new.txt").exists()


async def test_a_file_that_changed_since_stops_it(desk: Desk) -> None:
    seen = (await desk.see(desk.house.alice)).json()
    (desk.folder / "a.txt").write_text("a person's")
    refused = await desk.undo(desk.house.alice, seen["digest"])
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "stale")
    assert error["details"] == {"files": ["a.txt"]}
    assert (await desk.see(desk.house.alice)).json()["state"] == "changed"
    assert (desk.folder / "a.txt").read_text() == "a person's"
    assert not await sync_to_async(audited)()


async def test_only_what_was_shown_is_confirmed(desk: Desk) -> None:
    refused = await desk.undo(desk.house.alice, "0" * 64)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "stale")
    assert (desk.folder / "a.txt").read_text() == "agent's\n"


async def test_it_is_undone_once(desk: Desk) -> None:
    digest = (await desk.see(desk.house.alice)).json()["digest"]
    await desk.undo(desk.house.alice, digest)
    again = await desk.undo(desk.house.alice, digest)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "already_undone")
    assert again.json()["error"]["details"]["undone_by"] == "alice"
    assert (await desk.see(desk.house.alice)).json()["state"] == "undone"


async def test_one_that_was_cut_off_is_finished_by_the_next(desk: Desk) -> None:
    """The server died between the journal's two lines."""

    await sync_to_async(begun)(desk)
    seen = (await desk.see(desk.house.alice)).json()
    assert seen["state"] == "possible"
    assert "dora was cut off" in seen["message"]
    assert (await desk.undo(desk.house.alice)).status_code == 200


async def test_one_that_was_cut_off_behind_its_last_file_is_marked_as_done(desk: Desk) -> None:
    await sync_to_async(begun)(desk)
    (desk.folder / "a.txt").write_text("AAA")
    (desk.folder / "a.txt").chmod(0o640)
    seen = (await desk.see(desk.house.alice)).json()
    assert (seen["state"], [file["state"] for file in seen["files"]]) == ("possible", ["done"])
    done = await desk.undo(desk.house.alice, seen["digest"])
    assert (done.status_code, done.json()["state"]) == (200, "undone")
    last = (await sync_to_async(audited)())[-1]
    assert last == ("call.undone", "alice", {"event": desk.written[0], "files": 0, "lost": 0})


def begun(desk: Desk) -> None:
    """What the audit has of an undo whose server died."""
    change = audit.Change(
        action="call.undo_begun",
        by="dora",
        object_type="task",
        object_id=str(desk.task_id),
        after={"event": desk.written[0], "files": 1, "lost": 0},
    )
    audit.note(change)


async def test_who_comes_second_is_told_by_whom_it_was_undone(desk: Desk) -> None:
    """Both looked before either of them undid it."""
    task = await Task.objects.select_related("session__workspace").aget(pk=desk.task_id)
    call = await undoing.find(task, desk.written[0])
    plan = (await undoing.preview(call)).plan
    assert plan is not None
    await undoing.take_back(call, "dora", plan.digest)
    with pytest.raises(Conflict) as second:
        await undoing.take_back(call, "alice", plan.digest)
    assert second.value.code == "already_undone"
    assert len(await sync_to_async(audited)()) == 2


async def test_a_task_that_began_to_run_since_it_was_looked_at(desk: Desk) -> None:
    task = await Task.objects.select_related("session__workspace").aget(pk=desk.task_id)
    call = await undoing.find(task, desk.written[0])
    plan = (await undoing.preview(call)).plan
    assert plan is not None
    await Task.objects.filter(pk=desk.task_id).aupdate(status="running")
    with pytest.raises(Conflict) as refused:
        await undoing.take_back(call, "alice", plan.digest)
    assert refused.value.code == "task_running"


async def test_what_was_cut_off_is_said_when_the_rest_cannot_be_done(desk: Desk) -> None:
    task = await Task.objects.select_related("session__workspace").aget(pk=desk.task_id)
    call = await undoing.find(task, desk.written[0])
    cut_off = replace(call, entry=Entry(by="dora", at="", done=False))
    before = "An undo by dora was cut off; as before the call: {} of 1 file. "
    (desk.folder / "a.txt").write_text("a person's")
    changed = await undoing.preview(cut_off)
    assert changed.message == (
        f"{before.format(0)}Changed since the call: a.txt. Nothing more is undone."
    )
    (desk.folder / "a.txt").write_text("AAA")
    (desk.folder / "a.txt").chmod(0o640)
    done = await undoing.preview(cut_off)
    assert done.message == f"{before.format(1)}Undoing it again notes its end."
    by_hand = await undoing.preview(call)
    assert by_hand.state == "impossible"
    assert by_hand.message == "The files are as they were before the call."


@pytest.mark.parametrize(
    ("role", "sees", "may"),
    [
        ("approver", 200, True),
        ("member", 200, False),
        ("viewer", 200, False),
        ("resolve_approval", 200, True),
        ("stranger", 404, False),
    ],
)
async def test_who_decides_undoes(desk: Desk, role: str, sees: int, may: bool) -> None:
    user = await sync_to_async(make_user)("someone")
    if role == "resolve_approval":
        await sync_to_async(let_decide_everywhere)(user)
    elif role != "stranger":
        await Member.objects.acreate(workspace=desk.house.workspace, user=user, role=role)
    seen = await desk.see(user)
    assert seen.status_code == sees
    if sees == 200:
        assert seen.json()["can_undo"] is may
    digest = (await desk.see(desk.house.alice)).json()["digest"]
    assert (await desk.undo(user, digest)).status_code == (200 if may else 404)
    assert (desk.folder / "a.txt").read_text() == ("AAA" if may else "agent's\n")


async def test_a_token_needs_the_scope_approve(desk: Desk) -> None:
    headers = await sync_to_async(bearer)(desk.house.alice, scopes=["read", "write"])
    seen = await AsyncClient().get(desk.url(), headers=headers)
    assert seen.json()["can_undo"] is False
    refused = await AsyncClient().post(
        desk.url(),
        data={"digest": seen.json()["digest"]},
        content_type="application/json",
        headers=headers,
    )
    assert refused.status_code == 403


def test_another_site_undoes_nothing(desk: Desk) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(desk.house.alice)
    answer = client.post(desk.url(), data={"digest": "x"}, content_type="application/json")
    assert answer.status_code == 403


async def test_not_while_the_task_runs_or_a_command_does(desk: Desk) -> None:
    with alone_now(desk.folder):
        refused = await desk.undo(desk.house.alice)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "busy")
    await Task.objects.filter(pk=desk.task_id).aupdate(status="running")
    refused = await desk.undo(desk.house.alice)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "task_running")
    assert (desk.folder / "a.txt").read_text() == "agent's\n"


async def test_other_events_are_no_calls(desk: Desk) -> None:
    headers = await sync_to_async(bearer)(desk.house.alice)
    for sequence in ("1", "0", "-1", "99999", "9" * 30, "x", "1.5", "²"):
        url = f"/api/tasks/{desk.task_id}/events/{sequence}/undo"
        assert (await AsyncClient().get(url, headers=headers)).status_code == 404


async def test_what_is_not_kept_any_more_says_so(desk: Desk, settings: Settings) -> None:
    await sync_to_async(keeping.forget)(desk.task_id)
    seen = (await desk.see(desk.house.alice)).json()
    assert (seen["state"], seen["files"]) == ("impossible", [])
    assert "or it lies with a worker" in seen["message"]
    refused = await desk.undo(desk.house.alice)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "cannot_undo")


async def test_nothing_is_kept_where_the_settings_say_so(
    tmp_path: Path, settings: Settings
) -> None:
    settings.PILOTHOUSE = replace(conf(), undo_mb=0)
    desk = await finished(await sync_to_async(make_house)(tmp_path / "other"))
    assert not (conf().var_dir / "undo").exists()
    assert (await desk.see(desk.house.alice)).json()["state"] == "impossible"


def test_erasing_a_session_erases_what_was_kept(desk: Desk) -> None:
    kept = conf().var_dir / "undo" / str(desk.task_id)
    assert kept.is_dir()
    Session.objects.update(hidden=True)
    assert [task_id for task_id, _ in pruning.erase()] == [desk.task_id]
    assert not kept.exists()


def test_the_oldest_goes_first_when_there_is_too_much(settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), undo_mb=1, undo_days=2)
    tasks = [uuid4() for _ in range(4)]
    for age, task_id in reversed(list(enumerate(tasks))):
        shelf = keeping.shelf_of(task_id)
        assert shelf is not None
        shelf.put(bytes([age]) * 400_000)
        folder = conf().var_dir / "undo" / str(task_id)
        at = folder.stat().st_mtime - age * 24 * 3600 * 0.9
        os.utime(folder, (at, at))
    home = conf().var_dir / "undo"
    keeping.sweep()
    assert {path.name for path in home.iterdir()} == {str(tasks[0]), str(tasks[1])}
    os.utime(home / str(tasks[0]), (0, 0))
    keeping.sweep()
    assert {path.name for path in home.iterdir()} == {str(tasks[1])}


def test_a_sweep_spares_the_shelf_of_a_task_that_is_running(desk: Desk) -> None:
    kept = conf().var_dir / "undo" / str(desk.task_id)
    os.utime(kept, (0, 0))
    Task.objects.filter(pk=desk.task_id).update(status="running")
    assert keeping.sweep() == 0
    assert kept.is_dir()
    Task.objects.filter(pk=desk.task_id).update(status="completed")
    assert keeping.sweep() == 1


def test_the_log_names_the_record(desk: Desk) -> None:
    row = events.one(desk.task_id, desk.written[0])
    assert row is not None
    details = events.typed(row).details  # type: ignore[union-attr]
    assert details["undo"]["files"] == 1
    assert len(details["undo"]["record"]) == 64
