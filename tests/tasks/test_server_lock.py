"""One server per database, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connection

from tasks.server_lock import (
    AdvisoryLock,
    FileLock,
    ServerLock,
    ServerLockedError,
    SharedLock,
    acquire,
    kept,
)

HOLDER = """
import sys, time
from pathlib import Path
from tasks.server_lock import FileLock
lock = FileLock(Path(sys.argv[1]), worker="harbour:4711", address="http://127.0.0.1:8000")
print("held", flush=True)
time.sleep(60)
"""


def lock_of(database: Path, worker: str = "harbour:1") -> FileLock:
    return FileLock(database, worker=worker, address="http://127.0.0.1:8000")


@contextmanager
def other_process(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Holds the lock as harbour:4711 until it is killed."""
    command = [sys.executable, "-c", HOLDER, str(database)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.send_signal(signal.SIGKILL)


def test_the_second_is_refused_and_told_who_is_there(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite3"
    with other_process(database), pytest.raises(ServerLockedError) as refused:
        lock_of(database)
    sentence = str(refused.value)
    assert str(database) in sentence
    assert "process 4711 on harbour at http://127.0.0.1:8000" in sentence
    assert f"{database}.server.lock" in sentence


def test_after_a_kill_the_next_one_learns_the_name_of_the_dead(tmp_path: Path) -> None:
    database = tmp_path / "db.sqlite3"
    with other_process(database):
        pass
    lock = lock_of(database, "harbour:2")
    assert lock.previous_worker == "harbour:4711"
    lock.release()


def test_after_a_clean_end_there_is_nothing_to_take_over(tmp_path: Path) -> None:
    first = lock_of(tmp_path / "db.sqlite3")
    first.forget()
    first.release()
    second = lock_of(tmp_path / "db.sqlite3")
    assert second.previous_worker == ""
    second.release()


def test_an_end_with_runs_left_leaves_the_name(tmp_path: Path) -> None:
    lock_of(tmp_path / "db.sqlite3", "harbour:1").release()
    second = lock_of(tmp_path / "db.sqlite3", "harbour:2")
    assert second.previous_worker == "harbour:1"
    second.release()


def test_two_names_of_one_database_are_one_lock(tmp_path: Path) -> None:
    (tmp_path / "db.sqlite3").touch()
    (tmp_path / "alias.sqlite3").symlink_to(tmp_path / "db.sqlite3")
    lock = lock_of(tmp_path / "db.sqlite3")
    with pytest.raises(ServerLockedError):
        lock_of(tmp_path / "alias.sqlite3")
    lock.release()


def test_a_child_process_does_not_inherit_the_lock(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "db.sqlite3")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.release()
        lock_of(tmp_path / "db.sqlite3").release()
        child.kill()


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ServerLockedError, match=r"server.lock: No such file or directory\.$"):
        lock_of(tmp_path / "nowhere" / "db.sqlite3")


@pytest.mark.django_db
def test_the_default_database_is_locked_in_its_own_way(tmp_path: Path) -> None:
    lock: ServerLock = acquire(f"harbour:{os.getpid()}", address="", var_dir=tmp_path)
    expected = AdvisoryLock if connection.vendor == "postgresql" else FileLock
    assert isinstance(lock, expected)
    with pytest.raises(ServerLockedError, match=f"process {os.getpid()} on harbour"):
        acquire("harbour:2", address="", var_dir=tmp_path)
    lock.release()
    again = acquire("harbour:3", address="", var_dir=tmp_path)
    assert again.previous_worker == f"harbour:{os.getpid()}"
    again.forget()
    again.release()


@pytest.mark.django_db
@pytest.mark.only_postgresql
def test_a_lock_that_its_connection_lost_is_taken_again(tmp_path: Path) -> None:
    lock = AdvisoryLock("harbour:1", note=tmp_path / "server.worker")
    cut_off("harbour:1")
    lock.keep()
    with pytest.raises(ServerLockedError, match="process 1 on harbour"):
        acquire("harbour:2", address="", var_dir=tmp_path)
    lock.release()


@pytest.mark.django_db
@pytest.mark.only_postgresql
def test_a_lost_lock_that_another_server_took_is_his(tmp_path: Path) -> None:
    lock = AdvisoryLock("harbour:1", note=tmp_path / "server.worker")
    cut_off("harbour:1")
    other = AdvisoryLock("harbour:2", note=tmp_path / "server.worker")
    with pytest.raises(ServerLockedError, match="process 2 on harbour"):
        lock.keep()
    other.release()


async def test_it_is_watched_as_long_as_it_is_held_and_no_longer(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "db.sqlite3")
    async with kept(lock):
        (watch,) = (task for task in asyncio.all_tasks() if task.get_name() == "lock")
        with pytest.raises(ServerLockedError):
            lock_of(tmp_path / "db.sqlite3")
    assert watch.done()
    lock_of(tmp_path / "db.sqlite3").release()


async def test_a_watch_that_breaks_stops_the_server(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def keep(self) -> None:
            raise ValueError("as intended")

        def release(self) -> None: ...

    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        async with asyncio.timeout(20), kept(Broken()):
            await stopped.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
    assert "as intended" in caplog.text


@pytest.mark.django_db
@pytest.mark.only_postgresql
def test_a_look_that_comes_late_does_not_take_it_again(tmp_path: Path) -> None:
    """The watch looks in a thread, which may get there after the release."""
    lock = AdvisoryLock("harbour:1", note=tmp_path / "server.worker")
    lock.release()
    lock.keep()
    acquire("harbour:2", address="", var_dir=tmp_path).release()


@pytest.mark.django_db
@pytest.mark.only_postgresql
def test_many_processes_hold_it_together_and_one_server_alone(tmp_path: Path) -> None:
    some = [SharedLock(f"harbour:{number}") for number in (1, 2)]
    with pytest.raises(ServerLockedError, match="on harbour"):
        acquire("harbour:3", address="", var_dir=tmp_path)
    for lock in some:
        lock.release()
    alone = acquire("harbour:3", address="", var_dir=tmp_path)
    with pytest.raises(ServerLockedError, match="process 3 on harbour"):
        SharedLock("harbour:4")
    alone.release()


def cut_off(worker: str) -> None:
    """As a database that restarts: the connection is gone, and with it the lock."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s",
            [worker],
        )
