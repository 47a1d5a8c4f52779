"""Sends the messages of `tasks.notices`: mail with a link, and a signed webhook. Lives with the server.

The webhook is signed as Standard Webhooks describes (`tasks.signatures`). It says that something
waits and where, and nothing of what is in files.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import smtplib
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from channels.db import database_sync_to_async
from django.core import signing
from django.core.mail import EmailMessage
from django.db import DatabaseError
from django.urls import reverse
from django.utils import timezone, translation

from agent.addresses import is_public, lookup
from tasks import goals, notices, signatures
from tasks.conf import conf
from tasks.events import wire_time
from tasks.models import Approval, Notice
from tasks.told import told
from tasks.words import later, say
from tasks.writer import WriterUnavailable, writer

if TYPE_CHECKING:
    import httpx  # at its first use only: it takes 13 MiB

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
SEND_SECONDS = 15.0
_MAIL = ThreadPoolExecutor(4, thread_name_prefix="mail")
"""A mail server that hangs must not hold the threads that tools of runs wait for."""
LINK_SALT = "tasks.decide"
"""Of the signed part of links in mails; `tasks.pages.decide` reads it."""


RISKS = {"low": later("Low risk."), "medium": later("Medium risk."), "high": later("High risk.")}


class NotSent(Exception):
    """A sentence for the list of deliveries."""


class Notifier:
    """One per server, on its event loop."""

    def __init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._watching = loop.create_task(self._watch(), name="notices", context=Context())

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    async def _watch(self) -> None:
        while True:
            try:
                await look()
            except (WriterUnavailable, DatabaseError) as trouble:
                logger.error("Nobody can be told of what waits: %s", trouble)
            except Exception:  # the boundary of one look: the next one must come
                logger.exception("Telling people stumbled and goes on.")
            await asyncio.sleep(LOOK_SECONDS)


async def look() -> None:
    """Send everything that is due."""
    if not await database_sync_to_async(notices.anything_due)():
        return
    await writer.run(notices.fan_out)
    claimed = await writer.run(notices.claim)
    await asyncio.gather(*(_deliver(notice) for notice in claimed))


async def _deliver(notice: Notice) -> None:
    send = {Notice.Channel.MAIL.value: _mail, Notice.Channel.WEBHOOK.value: _post}[notice.channel]
    problem = ""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await send(notice)
    except TimeoutError:
        problem = f"No answer within {SEND_SECONDS:g} s."
    except (NotSent, OSError, smtplib.SMTPException, ValueError) as trouble:
        # ValueError: an address that no mail can be written to.
        problem = f"{trouble}" or type(trouble).__name__
    await writer.run(partial(notices.settle, notice.pk, problem))


# ── mail ──────────────────────────────────────────────────────────────────────────────────────


async def _mail(notice: Notice) -> None:
    message = mail_of(notice)
    await asyncio.get_running_loop().run_in_executor(_MAIL, message.send)


def mail_of(notice: Notice) -> EmailMessage:
    """In the one language of all mails: nobody is there whose browser would say another."""
    with translation.override(conf().mail_language):
        return _mail_of(notice)


def _mail_of(notice: Notice) -> EmailMessage:
    approval = notice.approval
    tool, until = _line(approval.tool, 60), approval.expires_at
    goal = _line(goals.plain(approval.task.goal), 200)
    lines = [
        say("A task has stopped and asks before it goes on: {goal}", goal=goal),
        "",
        say("Call: {tool} ({capability})", tool=approval.tool, capability=approval.capability),
        str(RISKS.get(approval.risk, approval.risk)),
        say("Why it asks: {why}", why=_line(told(approval.reason), 300)),
        say("Until {at}; silence means no.", at=wire_time(until)) if until else "",
        "",
        say("Look at it and decide (you will have to be signed in):"),
        link_for(notice),
        "",
        say("Opening the link changes nothing."),
    ]
    again = say(
        "Still waits for you: {tool}" if notice.reminder else "Waits for you: {tool}", tool=tool
    )
    return EmailMessage(
        subject=again,
        body="\n".join(lines),
        from_email=conf().mail_from,
        to=[notice.address],
        headers={"Auto-Submitted": "auto-generated"},
    )


def link_for(notice: Notice) -> str:
    """For this person and this approval; its age is checked when it is opened."""
    signed = signing.dumps([str(notice.approval_id), notice.user_id], salt=LINK_SALT)
    return conf().public_url + reverse("decide", args=[signed])


def _line(text: str, most: int) -> str:
    return " ".join(text.split())[:most]


# ── webhook ───────────────────────────────────────────────────────────────────────────────────


async def _post(notice: Notice) -> None:
    httpx = await asyncio.to_thread(importlib.import_module, "httpx")
    try:
        await _send(notice)
    except httpx.HTTPError as trouble:
        raise NotSent(f"{trouble}" or type(trouble).__name__) from trouble


async def _send(notice: Notice) -> None:
    import httpx

    settings = conf()
    body = msgspec.json.encode(payload_of(notice))
    url, host, extensions = await _judged(settings.notify_url, settings.notify_private)
    headers = {"Content-Type": "application/json", "Host": host}
    headers |= signature(settings.notify_key, str(notice.pk), body)
    async with (
        httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=SEND_SECONDS) as client,
        client.stream(
            "POST", url, content=body, headers=headers, extensions=extensions
        ) as response,
    ):
        if not response.is_success:  # whatever else it says is not read
            raise NotSent(f"It answered {response.status_code}.")


async def _judged(address: str, private: bool) -> tuple[httpx.URL, str, dict[str, str]]:
    """The URL with the address that was judged in place of its name, which is asked no second time."""
    import httpx

    url = httpx.URL(address)
    port = url.port or (443 if url.scheme == "https" else 80)
    found = await lookup(url.host, port)
    good = [each for each in found if private or is_public(each)]
    if not good:
        raise NotSent("Its address is not public; PILOTHOUSE_NOTIFY_PRIVATE=1 would allow it.")
    return url.copy_with(host=good[0]), url.netloc.decode(), {"sni_hostname": url.host}


def payload_of(notice: Notice) -> dict[str, Any]:
    approval: Approval = notice.approval
    session = approval.task.session
    return {
        "type": "approval.waiting",
        "timestamp": wire_time(notice.created_at),
        "data": {
            "approval_id": str(approval.pk),
            "task_id": str(approval.task_id),
            "session_id": str(session.pk),
            "workspace": session.workspace.name,
            "trigger": approval.task.trigger,
            "kind": approval.kind,
            "tool": approval.tool,
            "capability": approval.capability,
            "risk": approval.risk,
            "expires_at": wire_time(approval.expires_at) if approval.expires_at else None,
            "reminder": notice.reminder,
            "url": f"{conf().public_url}{reverse('inbox')}#approval-{approval.pk}",
        },
    }


def signature(key: bytes, message_id: str, body: bytes) -> dict[str, str]:
    """The headers of Standard Webhooks for a body of now."""
    moment = str(int(timezone.now().timestamp()))
    return {
        "webhook-id": message_id,
        "webhook-timestamp": moment,
        "webhook-signature": signatures.standard(key, message_id, moment, body),
    }
