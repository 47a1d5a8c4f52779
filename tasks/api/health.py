"""Probes: is the process there, and can it do its work? Nobody signs in for them."""

from __future__ import annotations

import asyncio

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse

from tasks.api.errors import answer
from tasks.writer import WriterUnavailable, writer

PATIENCE_SECONDS = 5.0


async def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Says nothing of the database: restarting would not heal that."""
    return answer({"status": "ok"})


async def readyz(request: HttpRequest) -> HttpResponse:
    """Work can be accepted: the database answers and the writer commits."""
    checks = {"database": await _database(), "writer": await _writer()}
    failed = [name for name, state in checks.items() if state != "ok"]
    if not failed:
        return answer({"status": "ok", "checks": checks})
    message = f"Not ready: {', '.join(failed)}."
    error = {"code": "not_ready", "message": message, "details": checks}
    return answer({"error": error}, 503)


async def _database() -> str:
    try:
        await asyncio.wait_for(sync_to_async(_round_trip)(), PATIENCE_SECONDS)
    except DatabaseError:
        return "unreachable"
    except TimeoutError:
        return "slow"
    return "ok"


def _round_trip() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchone()


async def _writer() -> str:
    try:
        await asyncio.wait_for(writer.run(_nothing), PATIENCE_SECONDS)
    except WriterUnavailable:
        return "unavailable"
    except TimeoutError:
        return "slow"
    return "ok"


def _nothing() -> None:
    """A command that changes nothing: it comes back when those before it are committed."""
