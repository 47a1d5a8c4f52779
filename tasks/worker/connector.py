"""The queue's connections to PostgreSQL: they wait for a database that is away.

Procrastinate ends a worker when one statement of its heartbeat fails. A database that restarts
would end all workers, and their runs with them, so here a statement that could not be sent, or was
cut off, is sent again until the database is back. What may have been executed twice is harmless or
found by the sweep.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, LiteralString, TypeVar

import psycopg
from procrastinate import PsycopgConnector
from procrastinate.connector import Notify
from procrastinate.contrib.django.utils import connector_params
from procrastinate.exceptions import ConnectorException

T = TypeVar("T")

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
POOL_SIZE = 4
AWAY = (psycopg.OperationalError, psycopg.InterfaceError)


class PatientConnector(PsycopgConnector):
    """A small pool on the default database of Django's settings."""

    def __init__(self) -> None:
        super().__init__(
            kwargs=connector_params(), min_size=1, max_size=POOL_SIZE, timeout=5, num_workers=1
        )

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        try:
            await _patiently(partial(super().execute_query_async, query, **arguments))
        except ConnectorException as error:
            if not isinstance(error.__cause__, psycopg.errors.RaiseException):
                raise
            # We were silent for too long, and another worker got what this job was about.
            logger.warning(
                "A job had been closed by others: %s", error.__cause__.diag.message_primary
            )

    async def execute_query_one_async(
        self, query: LiteralString, **arguments: Any
    ) -> dict[str, Any]:
        return await _patiently(partial(super().execute_query_one_async, query, **arguments))

    async def execute_query_all_async(
        self, query: LiteralString, **arguments: Any
    ) -> list[dict[str, Any]]:
        return await _patiently(partial(super().execute_query_all_async, query, **arguments))

    async def listen_notify(self, on_notification: Notify, channels: Iterable[str]) -> None:
        await _patiently(partial(super().listen_notify, on_notification, list(channels)))


async def _patiently(statement: Callable[[], Awaitable[T]]) -> T:
    said = False
    while True:
        try:
            return await statement()
        except ConnectorException as error:
            if not isinstance(error.__cause__, AWAY):
                raise
            if not said:
                logger.warning("The queue waits for the database: %s", error.__cause__)
            said = True
        await asyncio.sleep(PAUSE_SECONDS)
