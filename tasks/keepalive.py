"""How the connections are set up that change tasks.

PostgreSQL: the session of a process that is gone, or paused, keeps no locks. A machine that vanishes
closes no connection, and a process that is paused in the middle of a transaction keeps the rows that
it locked; whoever wants to take its tasks over needs them. These are settings of one session: nothing
has to be tuned in the server.

SQLite: what a statement may have to take back is kept in memory. A statement that stores for many runs
touches many pages, and from the seventeenth on SQLite would make a file for it, and remove it again.
"""

from __future__ import annotations

import threading
from typing import Any

_own = threading.local()
"""A thread's: which connection of its own has its bounds."""

IDLE_SECONDS = 5
"""A transaction in which nothing happens for so long is rolled back. Commands take milliseconds."""
LOCK_PATIENCE = "250ms"
"""A command of a shared batch that waits longer for a row is repeated alone. Two processes whose
batches lock rows in different orders would otherwise wait for the deadlock detector."""
_SETTINGS = {
    "postgresql": f"""
    SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '10s'""",
    "sqlite": "PRAGMA temp_store = MEMORY",
}


def bound(connection: Any) -> None:
    """For an open Django connection, outside of a transaction."""
    with connection.cursor() as cursor:
        cursor.execute(_SETTINGS[connection.vendor])


def opened(connection: Any) -> None:
    """Open it, if it is not, as it is to be: whatever becomes of this process, what it locked is free
    again soon."""
    connection.ensure_connection()
    if vars(_own).get("bound") is not connection.connection:
        bound(connection)
        _own.bound = connection.connection


def limit_patience(connection: Any) -> None:
    """For the transaction that is open, with the commands of several; on SQLite nothing."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_PATIENCE}'")
