"""`copy_from` touches no database that is being served. The move itself: tests/scale/test_moving.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tasks.server_lock import FileLock, acquire

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database that nobody serves; which one does not matter, it is not read."""
    path = tmp_path / "old.sqlite3"
    path.touch()
    return path


def test_the_new_database_must_be_at_rest(old: Path, tmp_path: Path) -> None:
    server = acquire("harbour:4711", address="", var_dir=tmp_path)
    with pytest.raises(CommandError, match="process 4711 on harbour"):
        call_command("copy_from", f"sqlite:///{old}")
    server.release()


def test_the_old_database_must_be_at_rest(old: Path) -> None:
    server = FileLock(old, worker="harbour:4711", address="")
    with pytest.raises(CommandError, match="process 4711 on harbour"):
        call_command("copy_from", f"sqlite:///{old}")
    server.release()
    assert Path(f"{old}.server.lock").read_text() == "harbour:4711\n\n", "the next server reads it"


@pytest.mark.parametrize("url", ["foo", "postgress://u:p@host/db"])
def test_what_is_no_database_url_is_one_sentence(url: str) -> None:
    with pytest.raises(CommandError, match="is not a database URL; write"):
        call_command("copy_from", url)
