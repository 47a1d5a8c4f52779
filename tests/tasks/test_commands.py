"""The commands, in this process: what they make, refuse and say."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from agent.providers import demo
from tasks import events
from tasks.conf import conf
from tasks.management.commands.seed_demo import FILES, copy_missing
from tasks.models import Approval, Session, Task, Workspace
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db(transaction=True)

GOAL = "Compare the supplier quotes with the brief, check the invoices and write a report."
REPORT = "reports/supplier-report.md"


@pytest.fixture(autouse=True)
def _demo_model(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At full speed: people need its pauses, tests do not."""
    monkeypatch.setattr(demo, "PIECE_SECONDS", 0)
    settings.PILOTHOUSE = replace(
        conf(), demo_model=True, lease_seconds=1, workspaces_dir=tmp_path / "workspaces"
    )


@pytest.fixture
def office(tmp_path: Path) -> Path:
    """Alice, a superuser, and her workspace `office` with the demo files."""
    folder = tmp_path / "office"
    copy_missing(FILES, folder)
    alice = make_user("alice", is_superuser=True)
    make_workspace(alice, name="office", root=folder)
    return folder


class Said(str):
    """What a command printed, and its exit status."""

    status: int


def command(*words: str) -> Said:
    out, status = StringIO(), 0
    try:
        call_command(*words, stdout=out, stderr=out)
    except SystemExit as end:
        status = cast(int, end.code)
    said = Said(out.getvalue())
    said.status = status
    return said


def run_task(*options: str) -> Said:
    return command("run_task", "--goal", GOAL, *options)


def refusal(*words: str) -> str:
    with pytest.raises(CommandError) as refused:
        command(*words)
    assert refused.value.returncode == 2
    return str(refused.value)


def types(task: Task) -> list[str]:
    return [row.type for row in events.page(task.pk, 0, 1000)]


# ── run_task ──────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_may_not_write_completes_and_shows_its_steps(office: Path) -> None:
    said = run_task("--workspace", "office", "--approve", "deny")
    assert said.status == 0
    assert "step 1" in said
    assert "✓ read_file briefs/brief.md" in said
    assert "✗ write_file" in said
    assert "completed" in said
    assert not (office / REPORT).exists()
    task = Task.objects.get()
    assert (task.status, task.trigger, task.mode) == ("completed", "command", "deny")


def test_without_a_terminal_the_approval_stays_in_the_inbox(office: Path) -> None:
    said = run_task("--workspace", "office")
    assert said.status == 3
    approval = Approval.objects.get()
    assert f"resolve_approval {approval.pk} approve" in said
    assert "+# Supplier report" in said
    assert not (office / REPORT).exists()
    assert Task.objects.get().lease_worker == ""


def test_an_answer_and_recover_tasks_finish_what_run_task_left(office: Path) -> None:
    run_task("--workspace", "office")
    approval = Approval.objects.get()
    assert "approved: write_file" in command("resolve_approval", str(approval.pk), "approve")
    assert not (office / REPORT).exists()
    assert "waiting_approval" in command("recover_tasks", "--list")
    said = command("recover_tasks")
    assert "completed" in said
    assert "Ostermoor Paper" in (office / REPORT).read_text()
    assert "Nothing was run" in command("recover_tasks")
    assert "Nothing to run" in command("recover_tasks", "--list")


def test_a_rejection_reaches_the_agent_with_its_comment(office: Path) -> None:
    run_task("--workspace", "office")
    approval = str(Approval.objects.get().pk)
    command("resolve_approval", approval, "reject", "--comment", "In English, please")
    command("recover_tasks")
    assert "In English, please" in Task.objects.get().final_answer
    assert not (office / REPORT).exists()


def test_edited_arguments_are_what_is_written(office: Path) -> None:
    run_task("--workspace", "office")
    approval = str(Approval.objects.get().pk)
    edit = json.dumps({"path": "reports/short.md", "content": "Ostermoor.\n"})
    command("resolve_approval", approval, "approve", "--edit", edit)
    command("recover_tasks")
    assert (office / "reports/short.md").read_text() == "Ostermoor.\n"
    assert not (office / REPORT).exists()


def test_json_is_the_stored_log_with_the_live_events_in_their_places(office: Path) -> None:
    said = run_task("--workspace", "office", "--json", "--approve", "deny")
    lines = [json.loads(line) for line in said.splitlines()]
    stored = [line for line in lines if line["sequence"]]
    task = Task.objects.get()
    rows = events.page(task.pk, 0, 1000)
    assert stored == [json.loads(events.wire_body(row, cut=True)) for row in rows]
    grown: dict[str, str] = {}
    for line in lines:
        block = line["payload"].get("block_id")
        if line["type"] in {"assistant_delta", "reasoning_delta"}:
            assert line["sequence"] == 0
            assert line["task_id"] == str(task.pk)
            assert line["payload"]["offset"] == len(grown.get(block, ""))
            grown[block] = grown.get(block, "") + line["payload"]["delta"]
        elif line["type"] in {"assistant_message", "reasoning_message"}:
            assert grown.pop(block) == line["payload"]["text"]
    assert not grown


def test_a_follow_up_continues_the_session(office: Path) -> None:
    run_task("--workspace", "office", "--approve", "deny")
    first = Task.objects.get()
    said = run_task("--follow-up", str(first.pk), "--approve", "deny")
    assert said.status == 0
    second = Task.objects.exclude(pk=first.pk).get()
    assert (second.session_id, second.follow_up_of_id) == (first.session_id, first.pk)


def test_no_model_is_a_failed_task_that_says_what_to_set(office: Path, settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), demo_model=False)
    said = run_task("--workspace", "office")
    assert said.status == 1
    assert "PILOTHOUSE_LLM_BASE_URL" in said


def test_a_limit_has_an_exit_status_of_its_own(office: Path, settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), max_agent_steps=1)
    said = run_task("--workspace", "office")
    assert said.status == 5
    assert "over budget" in said


def test_a_server_that_only_reads_is_not_loosened_by_deny(office: Path, settings: Settings) -> None:
    settings.PILOTHOUSE = replace(conf(), mode="read_only")
    assert run_task("--workspace", "office", "--approve", "deny").status == 0


def test_it_leaves_the_tasks_of_others_alone(office: Path) -> None:
    other = make_task(make_session(Workspace.objects.get()))
    run_task("--workspace", "office", "--approve", "deny")
    other.refresh_from_db()
    assert other.status == "queued"


def test_a_folder_becomes_a_workspace_once(office: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere" / "office"
    folder.mkdir(parents=True)
    for _ in range(2):
        run_task("--workspace", str(folder), "--approve", "deny")
    made = Workspace.objects.get(root=str(folder))
    assert (made.name, made.owner.username) == ("office-2", "alice")


def test_with_nobody_there_local_is_made_and_found_again(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for _ in range(2):
        run_task("--workspace", str(tmp_path / "files"), "--approve", "deny")
    local = User.objects.get()
    assert (local.username, local.has_usable_password()) == ("local", False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--workspace", "nowhere"], "neither a workspace nor a folder called nowhere. Yours: of"),
        (["--workspace", "office", "--user", "zoe"], "no user called zoe"),
        (["--workspace", "office", "--user", "idle"], "idle is not active"),
        (["--workspace", "office", "--follow-up", "12"], "no task 12"),
        ([], "Say where to work"),
        (["--workspace", "office", "--goal", " "], "goal is empty"),
    ],
)
def test_what_cannot_be_asked_for_is_one_sentence(
    office: Path, options: list[str], sentence: str
) -> None:
    make_user("idle", is_active=False)
    assert sentence in refusal("run_task", "--goal", GOAL, *options)
    assert not Task.objects.exists()


def test_a_folder_inside_a_workspace_is_refused(office: Path) -> None:
    said = refusal("run_task", "--goal", GOAL, "--workspace", str(office / "quotes"))
    assert "lies inside the folder of another workspace" in said


def test_what_belongs_to_others_does_not_exist(office: Path) -> None:
    run_task("--workspace", "office")
    task, approval = Task.objects.get(), Approval.objects.get()
    make_user("charlie")
    charlie = ("--user", "charlie")
    assert "neither a workspace" in refusal(
        "run_task", "--goal", GOAL, "--workspace", "office", *charlie
    )
    assert "no task" in refusal("run_task", "--goal", GOAL, "--follow-up", str(task.pk), *charlie)
    assert "no approval" in refusal("resolve_approval", str(approval.pk), "approve", *charlie)


def test_among_several_superusers_somebody_must_be_named(office: Path) -> None:
    make_user("root", is_superuser=True)
    assert "--user" in refusal("run_task", "--goal", GOAL, "--workspace", "office")
    assert run_task("--workspace", "office", "--user", "alice", "--approve", "deny").status == 0


# ── approvals ─────────────────────────────────────────────────────────────────────────────────


def test_the_second_answer_hears_of_the_first(office: Path) -> None:
    run_task("--workspace", "office")
    approval = str(Approval.objects.get().pk)
    command("resolve_approval", approval, "reject")
    with pytest.raises(CommandError, match="rejected before your answer by alice") as late:
        command("resolve_approval", approval, "approve")
    assert late.value.returncode == 1


def test_a_changed_target_names_the_approval_that_is_asked_instead(office: Path) -> None:
    run_task("--workspace", "office")
    approval = str(Approval.objects.get().pk)
    (office / REPORT).parent.mkdir()
    (office / REPORT).write_text("mine\n")
    with pytest.raises(CommandError) as stale:
        command("resolve_approval", approval, "approve")
    successor = Approval.objects.get(status="pending")
    assert str(successor.pk) in str(stale.value)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["approve", "--edit", "{"], "--edit is not JSON"),
        (["approve", "--edit", "[]"], "--edit must be a JSON object"),
        (["approve", "--edit", '{"path": "../x", "content": ""}'], "out of the workspace"),
        (["approve", "--answer", "done"], "takes no answer"),
    ],
)
def test_a_bad_answer_leaves_the_approval_open(
    office: Path, words: list[str], sentence: str
) -> None:
    run_task("--workspace", "office")
    approval = Approval.objects.get()
    assert sentence in refusal("resolve_approval", str(approval.pk), *words)
    approval.refresh_from_db()
    assert approval.status == "pending"


def test_what_nobody_answered_expires_and_the_task_goes_on(office: Path) -> None:
    run_task("--workspace", "office")
    assert "Nothing has expired" in command("expire_approvals")
    Approval.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    task = Task.objects.get()
    assert str(task.pk) in command("expire_approvals")
    assert "completed" in command("recover_tasks")
    assert not (office / REPORT).exists()


# ── recover_tasks ─────────────────────────────────────────────────────────────────────────────


def test_recover_tasks_takes_over_when_the_lease_of_a_dead_process_ends(office: Path) -> None:
    run_task("--workspace", "office", "--approve", "deny")
    done = Task.objects.get()
    dead = Task.objects.create(
        session=Session.objects.create(owner=done.created_by, workspace=Workspace.objects.get()),
        goal=GOAL,
        trigger="api",
        created_by=done.created_by,
        mode="deny",
        lease_worker="elsewhere:1",
        lease_expires_at=timezone.now() + timedelta(seconds=0.5),
    )
    said = command("recover_tasks")
    assert f"{dead.pk}  completed" in said
    assert str(done.pk) not in said


# ── seed_demo ─────────────────────────────────────────────────────────────────────────────────


def test_seed_demo_makes_somebody_to_sign_in_as_and_something_to_work_on(client: Any) -> None:
    said = command("seed_demo")
    admin, demo = User.objects.get(), Workspace.objects.get()
    assert (admin.username, admin.is_superuser, admin.has_usable_password()) == (
        "admin",
        True,
        False,
    )
    assert (demo.name, demo.owner, demo.root) == (
        "demo",
        admin,
        str((conf().workspaces_dir / "demo").resolve()),
    )
    assert (Path(demo.root) / "briefs/brief.md").is_file()
    link = said.split()[-1]
    assert link.startswith("http://127.0.0.1:8000/sign-in/")
    assert client.get(link).status_code == 200


def test_seed_demo_again_prints_no_secret_unless_asked(client: Any) -> None:
    command("seed_demo")
    assert "/sign-in/" not in command("seed_demo")
    assert (User.objects.count(), Workspace.objects.count()) == (1, 1)
    link = command("seed_demo", "--link").split()[-1]
    assert client.get(link).status_code == 200


def test_seed_demo_leaves_an_installation_with_users_alone() -> None:
    make_user("alice", is_superuser=True)
    command("seed_demo")
    assert not Workspace.objects.exists()
    assert "Sign in as alice" in command("seed_demo", "--link")
    assert "no user called zoe" in refusal("seed_demo", "--link", "zoe")


def test_seed_demo_finishes_what_an_interrupted_one_left_and_keeps_what_is_there() -> None:
    mine = conf().workspaces_dir / "demo" / "briefs" / "brief.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine\n")
    command("seed_demo")
    assert mine.read_text() == "mine\n"
    names = {path.name for path in conf().workspaces_dir.rglob("*") if path.is_file()}
    assert names == {path.name for path in FILES.rglob("*") if path.is_file()}
