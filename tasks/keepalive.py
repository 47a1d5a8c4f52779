"""PostgreSQL: the session of a process that is gone, or paused, keeps no locks.

A machine that vanishes closes no connection, and a process that is paused in the middle of a
transaction keeps the rows that it locked; whoever wants to take its tasks over needs them. These
are settings of one session: nothing has to be tuned in the server.
"""

from __future__ import annotations

from typing import Any

IDLE_SECONDS = 5
"""A transaction in which nothing happens for so long is rolled back. Commands take milliseconds."""
_SETTINGS = f"""
    SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s';
    SET tcp_keepalives_idle = 5;
    SET tcp_keepalives_interval = 2;
    SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '10s'"""


def bound(connection: Any) -> None:
    """For an open Django connection, outside of a transaction; on SQLite nothing."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS)
