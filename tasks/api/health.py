"""Probes: is the process there, and can it do its work? Nobody signs in for them."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from asgiref.sync import sync_to_async
from django.contrib.sessions.models import Session as BrowserSession
from django.db import Error as DatabaseErrors
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from tasks.api.errors import answer, in_our_shape
from tasks.writer import WriterUnavailable, writer

PATIENCE_SECONDS = 5.0


@in_our_shape
@require_safe
async def healthz(request: HttpRequest) -> HttpResponse:
    """The process answers. Says nothing of the database: restarting would not heal that."""
    return answer({"status": "ok"})


@in_our_shape
@require_safe
async def readyz(request: HttpRequest) -> HttpResponse:
    """Work can be accepted: the database answers and the writer stores."""
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
    except DatabaseErrors:
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
        await asyncio.wait_for(writer.run(_store), PATIENCE_SECONDS)
    except (WriterUnavailable, DatabaseErrors):
        return "unavailable"
    except TimeoutError:
        return "slow"
    return "ok"


def _store() -> None:
    """A command that really writes, or a full disk would go unnoticed, and leaves nothing behind.

    A row of its own: changing one that others lock could make the writer wait for them.
    """
    key = f"readyz-{uuid4().hex[:24]}"
    BrowserSession.objects.create(session_key=key, expire_date=timezone.now())
    BrowserSession.objects.filter(session_key=key).delete()
