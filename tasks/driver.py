"""A statement's text, executed with as little as possible between it and the database's driver.

Django's cursor makes some forty calls of functions of what SQLite's driver does in one. So on SQLite
its driver is asked at once, under Django's conditions: an open connection, no broken transaction,
its own exceptions, never on the event loop. Whoever watches statements (`DEBUG`, a test that counts
them) sees every one, because then, as on other databases, Django executes it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NoReturn

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper

_FORMAT = re.compile(r"(?<!%)%s")


class _Own(threading.local):
    """Of a thread."""

    db: BaseDatabaseWrapper | None = None


_own = _Own()


def database() -> BaseDatabaseWrapper:
    """This thread's connection. Django makes it once, and looks for it with four calls each time."""
    if _own.db is None:
        _own.db = connections[DEFAULT_DB_ALIAS]
    return _own.db


@lru_cache(maxsize=1024)
def _native(sql: str) -> str:
    """Django's way to write values into a statement -> SQLite's."""
    return _FORMAT.sub("?", sql).replace("%%", "%")


def rows(db: BaseDatabaseWrapper, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    """What the statement finds or returns. Values are the driver's own (`tasks.conversions`)."""
    if not _directly(db):
        with db.cursor() as cursor:
            cursor.execute(sql, values)
            return list(cursor.fetchall())
    try:
        found: list[tuple[Any, ...]] = db.connection.execute(_native(sql), values).fetchall()
    except Exception as error:  # noqa: BLE001 - the driver's, whatever it is, becomes Django's
        _raise_as_django(db, error)
    return found


def change(db: BaseDatabaseWrapper, sql: str, values: Sequence[Any]) -> int:
    """How many rows the statement changed."""
    if not _directly(db):
        with db.cursor() as cursor:
            cursor.execute(sql, values)
            return int(cursor.rowcount)
    try:
        changed: int = db.connection.execute(_native(sql), values).rowcount
    except Exception as error:  # noqa: BLE001 - as above
        _raise_as_django(db, error)
    return changed


def _directly(db: BaseDatabaseWrapper) -> bool:
    return (
        db.vendor == "sqlite"
        and db.connection is not None
        and not (db.needs_rollback or db.execute_wrappers or db.queries_logged)
        and asyncio._get_running_loop() is None
    )


def _raise_as_django(db: BaseDatabaseWrapper, error: Exception) -> NoReturn:
    with db.wrap_database_errors:
        raise error
    raise AssertionError("it was raised")
