"""One server per database: the one that holds the lock runs its tasks.

SQLite: `flock` on `<database>.server.lock`. The kernel frees it with the process, however that
ended; the file stays, and names the last holder. PostgreSQL: a session advisory lock on a
connection of its own; the last holder is named in the state folder. A server that gave back all
its runs has its name forgotten, so a name that is found belongs to one that died with runs in its
hands: the new one takes them over at once.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from django.db import DatabaseError, InterfaceError, connections

from tasks import keepalive

logger = logging.getLogger(__name__)

GUARD_SECONDS = 2.0
ADVISORY_KEY = 0x70696C6F74  # any number that no other program takes in this database


class ServerLockedError(Exception):
    """Another server holds the database; the message says which and what to do."""


class Held(Protocol):
    """What keeps another kind of server away."""

    def keep(self) -> None:
        """Call it now and then: a lock that was lost with its connection is taken again. Raises
        ServerLockedError when another server was faster, DatabaseError while there is none."""

    def release(self) -> None:
        """The next server may start. What `keep` is doing in another thread is waited for."""


class ServerLock(Held, Protocol):
    """Held from the start of a server to its end."""

    previous_worker: str
    """host:pid of a server that died holding runs; empty after a clean end."""

    def forget(self) -> None:
        """No run is left in this server's name."""


@asynccontextmanager
async def kept(lock: Held) -> AsyncIterator[None]:
    """Watched while the block lasts, released after it."""
    watch = asyncio.get_running_loop().create_task(_watch(lock), name="lock")
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait({watch})
        await asyncio.to_thread(lock.release)


async def _watch(lock: Held) -> None:
    """Until it is cancelled. A database that restarts takes the lock away; whoever has it next is
    the server, and this one stops, as it does when it cannot tell any more whether it has the
    lock."""
    while True:
        await asyncio.sleep(GUARD_SECONDS)
        try:
            await asyncio.to_thread(lock.keep)
        except ServerLockedError as error:
            logger.critical("This process lost its database and stops. %s", error)
            signal.raise_signal(signal.SIGTERM)
            return
        except (DatabaseError, InterfaceError) as trouble:
            logger.error("The lock of the database is lost until that is back: %s", trouble)
        except Exception:  # a boundary: nobody would see the watch end, and its lock go
            logger.critical("The lock of the database is watched no longer.", exc_info=True)
            signal.raise_signal(signal.SIGTERM)
            return


def acquire(worker: str, *, address: str, var_dir: Path) -> ServerLock:
    """Takes the lock of the default database for `worker` (host:pid), or raises ServerLockedError.

    Without a worker it is only tried: what the last holder left there stays for the next server.
    """
    database = connections["default"].settings_dict
    if database["ENGINE"].endswith("sqlite3"):
        return FileLock(Path(database["NAME"]), worker=worker, address=address)
    return AdvisoryLock(worker, note=var_dir / "server.worker")


def alone(alias: str, who: str) -> Held:
    """Keeps every server of a database away, whatever it runs, or raises ServerLockedError. What the
    last one left there stays for the next."""
    database = connections[alias].settings_dict
    if database["ENGINE"].endswith("sqlite3"):
        return FileLock(Path(database["NAME"]), worker="", address="")
    return _Advisory(who, "pg_try_advisory_lock", alias)


class FileLock:
    """Beside the database file, under its real name, so that two paths to it are one server."""

    def __init__(self, database: Path, *, worker: str, address: str) -> None:
        self.database = database.resolve()
        self.path = self.database.with_name(f"{self.database.name}.server.lock")
        try:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ServerLockedError(
                f"Cannot open the lock file {self.path}: {error.strerror}."
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise ServerLockedError(self._refusal(error)) from error
        self.previous_worker = _first_line(self.path)
        if worker:
            self._write(f"{worker}\n{address}\n")

    def forget(self) -> None:
        # The file is never deleted: a server that waits at its door has it open already.
        self._write("")

    def keep(self) -> None:
        """The kernel takes it from nobody who lives."""

    def release(self) -> None:
        os.close(self._file)

    def _write(self, text: str) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, text.encode(), 0)

    def _refusal(self, error: OSError) -> str:
        if not isinstance(error, BlockingIOError):
            return f"Cannot lock {self.path}: {error.strerror}. SQLite needs a local file system."
        lines = self.path.read_text(encoding="utf-8").split("\n")
        host, _, pid = lines[0].rpartition(":")
        where = f" at {lines[1]}" if len(lines) > 1 and lines[1] else ""
        return (
            f"Another server already serves {self.database}: process {pid or 'unknown'} on"
            f" {host or 'this machine'}{where}. Stop it first, or write another DATABASE_URL."
            f" (Its lock is {self.path}.)"
        )


class AdvisoryLock:
    """Lives as long as its database session."""

    def __init__(self, worker: str, *, note: Path) -> None:
        self._note = note
        self._lock = _Advisory(worker, "pg_try_advisory_lock")
        self.previous_worker = _first_line(note)
        if worker:
            note.write_text(f"{worker}\n", encoding="utf-8")

    def forget(self) -> None:
        self._note.write_text("", encoding="utf-8")

    def keep(self) -> None:
        self._lock.keep()

    def release(self) -> None:
        self._lock.release()


class _Advisory:
    """A session advisory lock on a connection of its own, which carries the holder's name."""

    def __init__(self, worker: str, function: str, alias: str = "default") -> None:
        self._worker, self._function = worker, function
        self._using = threading.Lock()
        self._released = False
        self._connection: Any = connections.create_connection(alias)
        self._connection.inc_thread_sharing()  # taken in a thread, released from the event loop
        self._take()

    def keep(self) -> None:
        with self._using:
            if not self._released:  # a thread that comes late must not take it again
                self._check()

    def release(self) -> None:
        with self._using:
            self._released = True
            self._connection.close()

    def _check(self) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT 1")
        except (DatabaseError, InterfaceError):
            self._connection.close()
            self._take()

    def _take(self) -> None:
        keepalive.bound(self._connection)
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT set_config('application_name', %s, false)", [self._worker])
            cursor.execute(f"SELECT {self._function}(%s)", [ADVISORY_KEY])
            if not cursor.fetchone()[0]:
                holder = self._holder(cursor)
                self._connection.close()
                raise ServerLockedError(holder)

    def _holder(self, cursor: Any) -> str:
        cursor.execute(
            "SELECT application_name FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND granted AND pg_locks.database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND (classid::bigint << 32 | objid::bigint) = %s",
            [ADVISORY_KEY],
        )
        row = cursor.fetchone()
        host, _, pid = (row[0] if row else "").rpartition(":")
        name = self._connection.settings_dict["NAME"]
        return (
            f"Another server already serves the database {name}: process {pid or 'unknown'} on"
            f" {host or 'another machine'}. Stop it first, or write another DATABASE_URL."
        )


class SharedLock(_Advisory):
    """What all processes of a scaled-out installation hold together, so that no server that runs
    its tasks by itself works beside them, nor they beside it. PostgreSQL only."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker, "pg_try_advisory_lock_shared")


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").split("\n", 1)[0]
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
