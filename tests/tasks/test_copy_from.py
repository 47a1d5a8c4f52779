"""`copy_from` touches no database that is being served. The move itself: tests/scale/test_moving.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections

from tasks.server_lock import ADVISORY_KEY, FileLock, acquire

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


@pytest.mark.only_postgresql
def test_an_old_postgresql_must_be_at_rest() -> None:
    """Web processes and workers hold its lock together."""
    where = connection.settings_dict
    connections.databases["elsewhere"] = {**where, "NAME": "postgres"}
    elsewhere = connections.create_connection("elsewhere")
    user = f"{where['USER']}:{where['PASSWORD']}@{where['HOST']}:{where['PORT']}"
    with elsewhere.cursor() as cursor:
        cursor.execute("SET application_name = 'harbour:4711'")
        cursor.execute("SELECT pg_advisory_lock_shared(%s)", [ADVISORY_KEY])
        try:
            with pytest.raises(CommandError, match="process 4711 on harbour"):
                call_command("copy_from", f"postgres://{user}/postgres")
        finally:
            elsewhere.close()
            del connections.databases["elsewhere"]
