"""From SQLite to PostgreSQL: the same log, with the same root, that goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.daphne import ROOT, environment, manage, migrated
from tests.support.scaled import ScaledHouse, Services

DEMO = {"PILOTHOUSE_DEMO_MODEL": "1"}
GOAL = ("--goal", "Compare the supplier quotes and write a report.", "--json")


def root_of(state: Path, env: Mapping[str, str]) -> str:
    output = manage(state, "verify_log", env=env)
    assert " 0 broken" in output
    return output.splitlines()[-1]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_database_moves_with_its_log(tmp_path: Path, scale: Services) -> None:
    migrated(tmp_path)
    manage(tmp_path, "seed_demo", env=DEMO)
    run = manage_any(tmp_path, "run_task", "--workspace", "demo", "--approve", "deny", *GOAL)
    assert run.returncode == 0, run.stderr
    before = root_of(tmp_path, {})
    scale.postgres.run("CREATE DATABASE moved")
    new = {"DATABASE_URL": scale.postgres.url("moved")}
    manage(tmp_path, "migrate", "-v0", env=new)
    old = f"sqlite:///{tmp_path / 'db.sqlite3'}"
    manage(tmp_path, "copy_from", old, env=new)
    assert root_of(tmp_path, new) == before
    again = manage_any(
        tmp_path, "run_task", "--workspace", "demo", "--approve", "deny", *GOAL, env=new
    )
    assert again.returncode == 0, again.stderr
    assert root_of(tmp_path, new) != before


def test_nothing_moves_into_or_out_of_what_is_served(tmp_path: Path, house: ScaledHouse) -> None:
    """Web processes and workers hold the lock of their database together."""
    migrated(tmp_path)
    served = {"DATABASE_URL": house.services.postgres.url(house.database)}
    out_of = manage_any(tmp_path, "copy_from", served["DATABASE_URL"])
    into = manage_any(tmp_path, "copy_from", f"sqlite:///{tmp_path / 'db.sqlite3'}", env=served)
    for refused in (out_of, into):
        assert refused.returncode != 0
        assert f"Another server already serves the database {house.database}" in refused.stderr


def manage_any(
    state: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(state, DEMO | dict(env or {})),
        capture_output=True,
        text=True,
        check=False,
    )
