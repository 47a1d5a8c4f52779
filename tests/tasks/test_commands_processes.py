"""`run_task` as a process: on a terminal, under signals, killed, and beside a server."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.management.commands.seed_demo import FILES, copy_missing
from tests.support.daphne import ROOT, Daphne, environment, manage, migrated
from tests.support.terminal import Terminal

GOAL = "Compare the supplier quotes with the brief, check the invoices and write a report."
SETTINGS = {"PILOTHOUSE_DEMO_MODEL": "1", "PILOTHOUSE_LEASE_SECONDS": "1"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An empty installation, and a folder with the demo files."""
    migrated(tmp_path)
    copy_missing(FILES, tmp_path / "office")
    return tmp_path


def run_task(state: Path, *options: str) -> list[str]:
    return ["run_task", "--workspace", str(state / "office"), "--goal", GOAL, *options]


def report(state: Path) -> Path:
    return state / "office" / "reports" / "supplier-report.md"


def on_terminal(state: Path) -> Terminal:
    return Terminal(run_task(state), environment(state, SETTINGS))


class Piped:
    """`run_task --json` behind a pipe, event by event."""

    def __init__(self, state: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", *run_task(state, "--json", *words)],
            cwd=ROOT,
            env=environment(state, SETTINGS),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def until(self, type_: str, step: int | None = None) -> dict[str, Any]:
        for event in self.events():
            if event["type"] == type_ and step in (None, event["payload"].get("step")):
                return event
        raise AssertionError(f"it ended without {type_}")

    def end(self) -> int:
        with self.process:
            return self.process.wait(30)


def only(state: Path, query: str) -> Any:
    with sqlite3.connect(state / "db.sqlite3") as database:
        (row,) = database.execute(query).fetchall()
    database.close()
    return row


def test_at_the_prompt_nothing_is_written_before_the_yes(state: Path) -> None:
    with on_terminal(state) as terminal:
        card = terminal.until("later: ")
        assert "write_file reports/supplier-report.md" in card
        assert "+# Supplier report" in card
        assert not report(state).exists()
        terminal.enter("perhaps")
        terminal.until("later: ")
        terminal.enter("y")
        assert "approved by local" in terminal.until("completed")
        assert terminal.end() == 0
    assert "Ostermoor Paper" in report(state).read_text()


@pytest.mark.long
def test_a_no_asks_why_and_the_agent_hears_it(state: Path) -> None:
    with on_terminal(state) as terminal:
        terminal.until("later: ")
        terminal.enter("n")
        terminal.until("may be empty): ")
        terminal.enter("Wait for Monday")
        assert "Wait for Monday" in terminal.until("step 4")
        terminal.until("completed")
        assert terminal.end() == 0
    assert not report(state).exists()


@pytest.mark.long
def test_the_prompt_gives_way_when_somebody_else_answers(state: Path) -> None:
    with on_terminal(state) as terminal:
        terminal.until("later: ")
        (approval,) = only(state, "SELECT id FROM tasks_approval")
        manage(state, "resolve_approval", approval, "approve", env=SETTINGS)
        terminal.until("approved by local")
        terminal.until("completed")
        assert terminal.end() == 0
    assert report(state).exists()


def test_ctrl_c_at_the_prompt_cancels_the_task(state: Path) -> None:
    with on_terminal(state) as terminal:
        terminal.until("later: ")
        terminal.signal(signal.SIGINT)
        terminal.until("cancelled by local")
        assert terminal.end() == 4
    assert only(state, "SELECT status FROM tasks_approval") == ("cancelled",)


@pytest.mark.long
def test_ctrl_c_stops_a_running_model(state: Path) -> None:
    run = Piped(state)
    run.until("reasoning_delta", step=2)
    run.process.send_signal(signal.SIGINT)
    *_, last = run.events()
    assert last["type"] == "task_cancelled"
    assert run.end() == 4


@pytest.mark.long
def test_a_second_ctrl_c_quits_even_if_the_database_is_busy(state: Path) -> None:
    run = Piped(state)
    run.until("reasoning_delta", step=2)
    database = sqlite3.connect(state / "db.sqlite3", isolation_level=None)
    database.execute("BEGIN IMMEDIATE")
    run.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        run.process.wait(0.3)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    database.close()


def test_sigterm_lets_go_of_the_task(state: Path) -> None:
    run = Piped(state)
    run.until("reasoning_delta", step=2)
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143
    status, lease = only(state, "SELECT status, lease_expires_at FROM tasks_task")
    assert (status, lease) == ("running", None)


@pytest.mark.parametrize(
    ("type_", "step"),
    [
        pytest.param("tool_call_started", 2, marks=pytest.mark.long),
        pytest.param("task_created", None, marks=pytest.mark.long),
        pytest.param("reasoning_delta", 3, marks=pytest.mark.long),
        pytest.param("approval_required", None, marks=pytest.mark.long),
    ],
)
def test_a_killed_task_is_finished_by_another_process(
    state: Path, type_: str, step: int | None
) -> None:
    run = Piped(state)
    run.until(type_, step)
    run.process.kill()
    run.end()
    manage(state, "recover_tasks", env=SETTINGS)
    assert not report(state).exists()
    (approval,) = only(state, "SELECT id FROM tasks_approval WHERE status = 'pending'")
    manage(state, "resolve_approval", approval, "approve", env=SETTINGS)
    assert "completed" in manage(state, "recover_tasks", env=SETTINGS)
    assert report(state).exists()
    assert "0 broken" in manage(state, "verify_log", env=SETTINGS)


@pytest.mark.long
def test_a_task_outlives_its_reader(state: Path) -> None:
    run = Piped(state, "--approve", "deny")
    run.until("task_started")
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert run.process.wait(30) == 0
    assert only(state, "SELECT status FROM tasks_task") == ("completed",)


@pytest.mark.long
def test_a_server_beside_it_continues_what_was_left_in_the_inbox(state: Path) -> None:
    with Daphne(state, env=SETTINGS) as server:
        run = Piped(state)
        types = [event["type"] for event in run.events()]
        assert types.count("task_started") == 1  # the server kept its hands off
        assert run.end() == 3
        (approval,) = only(state, "SELECT id FROM tasks_approval")
        manage(state, "resolve_approval", approval, "approve", env=SETTINGS)
        wait_for_end(state, server)
    assert report(state).exists()


def wait_for_end(state: Path, server: Daphne) -> None:
    for _ in range(300):
        if only(state, "SELECT status FROM tasks_task") == ("completed",):
            return
        time.sleep(0.1)
    raise AssertionError(server.log)


@pytest.mark.parametrize(
    "words", [["verify_log"], ["create_token", "admin"], ["check_model", "small"]], ids=" ".join
)
def test_without_a_database_a_command_says_what_to_do(tmp_path: Path, words: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "Refused: The database is not set up yet: run `make setup` first.\n"
