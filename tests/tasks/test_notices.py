"""People are told of what waits: reminders, mail and webhook."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.mail.backends.base import BaseEmailBackend
from django.test import Client
from django.utils import timezone

from tasks import notices, notify, waiting
from tasks.models import Approval, Notice
from tasks.told import told_in
from tasks.writer import writer
from tests.support import runs
from tests.support.notices import having, look, prepared
from tests.support.people import House, bearer, make_approval
from tests.support.rows import make_task
from tests.support.turns import DONE, WRITE

pytestmark = pytest.mark.django_db(transaction=True)

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def house(tmp_path: Path) -> House:
    return prepared(tmp_path)


@dataclass
class Receiver:
    """A server that keeps what it is sent and answers as it is told."""

    status: int = 204
    extra: str = ""
    hangs: bool = False
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    port: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"http://localhost:{self.port}/hook"
        finally:
            server.close()  # whoever hangs here goes with the loop: nobody waits for it

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[1:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self.got.append((headers, await reader.readexactly(int(headers["content-length"]))))
        self.arrived.set()
        if self.hangs:
            await reader.read()
        else:
            head = f"HTTP/1.1 {self.status} X\r\nconnection: close\r\ncontent-length: 0\r\n"
            writer.write(f"{head}{self.extra}\r\n".encode())
        writer.close()


async def told(settings: Any, receiver: Receiver, **more: Any) -> None:
    async with receiver.open() as url:
        having(settings, notify_url=url, notify_key=KEY, **{"notify_private": True, **more})
        await notify.look()


# ── when ──────────────────────────────────────────────────────────────────────────────────────


def test_reminders_come_at_parts_of_the_time_and_at_ages(settings: Any) -> None:
    having(settings, remind_at=(0.5, 0.9, 60, 99_999))
    since = timezone.now()
    row = Approval(waits_since=since, expires_at=since + timedelta(seconds=1000))
    moments, after = [], since
    while (found := waiting.next_reminder(row, after)) is not None:
        moments.append((found - since).total_seconds())
        after = found

    assert moments == [60, 500, 900]


def test_each_moment_is_told_once_and_silence_is_the_end(house: House, settings: Any) -> None:
    having(settings, remind_at=(0.5,), mail_from="us@example.com")
    start = house.approval.waits_since
    counts = []
    for seconds in (1, 2, 800, 901, 902, 1700, 1801):
        writer.run_sync(partial(notices.fan_out, start + timedelta(seconds=seconds)))
        counts.append(Notice.objects.filter(address="alice@example.com").count())

    assert counts == [1, 1, 1, 2, 2, 2, 2]
    assert set(Notice.objects.values_list("reminder", flat=True)) == {0, 1}


def test_more_time_begins_a_new_stretch(house: House, settings: Any) -> None:
    having(settings, remind_at=(0.5,))
    writer.run_sync(lambda: waiting.snooze(house.approval.pk, "alice", 7200))
    house.approval.refresh_from_db()

    assert house.approval.notify_at == house.approval.waits_since + timedelta(seconds=3600)


# ── mail ──────────────────────────────────────────────────────────────────────────────────────


def test_whoever_may_decide_gets_a_mail_of_their_own(house: House, settings: Any) -> None:
    having(settings, mail_from="us@example.com")
    look()

    assert sorted(message.to[0] for message in mail.outbox) == [
        "alice@example.com",
        "dora@example.com",
    ]
    assert all(message.from_email == "us@example.com" for message in mail.outbox)
    assert len({message.body for message in mail.outbox}) == 2
    assert "hello" not in mail.outbox[0].body, "what would be written stays here"
    assert set(Notice.objects.values_list("status", flat=True)) == {"sent"}
    look()
    assert len(mail.outbox) == 2


def test_mails_are_in_one_language(house: House, settings: Any) -> None:
    having(settings, mail_from="us@example.com", mail_language="zh-hans")
    look()
    message = mail.outbox[0]
    assert message.subject == f"等你决定：{house.approval.tool}"  # noqa: RUF001 - Chinese
    assert told_in("zh-Hans", house.approval.reason) in message.body
    assert "/decide/" in message.body
    left = re.sub(r"http\S+|\w+_\w+|\w+:\w+|[\dT:.-]+Z", "", str(message.body))
    assert set(re.findall("[A-Za-z]{3,}", left)) <= set(re.findall(r"\w+", house.task.goal))


def test_without_a_sender_nobody_gets_mail(house: House) -> None:
    look()

    assert mail.outbox == []


@pytest.mark.parametrize(
    ("demands", "names"),
    [
        ({"other_approver": ("write",)}, ["dora"]),
        ({"approver_groups": {"write": "editors"}}, ["charlie"]),
        ({"two_approvers": ("write",)}, ["dora"]),
    ],
)
def test_only_who_can_say_yes_is_asked(
    house: House, settings: Any, demands: dict[str, Any], names: list[str]
) -> None:
    having(settings, **demands)
    house.charlie.groups.add(Group.objects.create(name="editors"))
    if "two_approvers" in demands:
        body = {"decision": "approve"}
        path = f"/api/approvals/{house.approval.pk}/resolve"
        Client(headers=bearer(house.alice)).post(path, body, content_type="application/json")
    house.approval.refresh_from_db()

    assert [user.username for user in notices.recipients(house.approval)] == names


def test_who_left_or_has_no_address_is_not_asked(house: House) -> None:
    User.objects.filter(username="alice").update(email="")
    User.objects.filter(username="dora").update(is_active=False)

    assert notices.recipients(house.approval) == []


def test_a_goal_cannot_add_headers_to_the_mail(house: House, settings: Any) -> None:
    having(settings, mail_from="us@example.com")
    house.approval.tool = "write_file\nBcc: eve@example.com"
    house.approval.save()
    look()

    assert all("\n" not in message.subject for message in mail.outbox)
    assert len(mail.outbox) == 2


def test_an_address_that_no_mail_can_go_to_is_said_and_the_others_get_theirs(
    house: House, settings: Any
) -> None:
    having(settings, mail_from="us@example.com")
    User.objects.filter(username="alice").update(email="alice@example.com\nBcc: eve@example.com")
    look()

    notice = Notice.objects.get(user=house.alice)
    assert (notice.status, bool(notice.error)) == ("pending", True)
    assert [message.to for message in mail.outbox] == [["dora@example.com"]]


class Hanging(BaseEmailBackend):
    """A mail server that takes a connection and says nothing until it may."""

    reached, go = threading.Event(), threading.Event()

    def send_messages(self, messages: Sequence[Any]) -> int:
        self.reached.set()
        self.go.wait(30)
        return len(messages)


async def test_a_mail_server_that_hangs_takes_no_thread_from_runs(
    tmp_path: Path, settings: Any
) -> None:
    await sync_to_async(prepared)(tmp_path)
    settings.EMAIL_BACKEND = f"{__name__}.{Hanging.__name__}"
    having(settings, mail_from="us@example.com")
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    looking = asyncio.create_task(notify.look())
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(Hanging.reached.wait, 20)
    finally:
        Hanging.go.set()
        await looking


# ── the webhook ───────────────────────────────────────────────────────────────────────────────


async def test_the_webhook_is_signed_and_says_where(tmp_path: Path, settings: Any) -> None:
    house = await sync_to_async(prepared)(tmp_path)
    receiver = Receiver()
    await told(settings, receiver)

    [(headers, body)] = receiver.got
    data = json.loads(body)["data"]
    assert data["approval_id"] == str(house.approval.pk)
    assert data["url"].endswith(f"/inbox#approval-{house.approval.pk}")
    assert b"hello" not in body
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["host"] == f"localhost:{receiver.port}"
    notice = await Notice.objects.aget()
    assert (notice.status, str(notice.pk)) == ("sent", headers["webhook-id"])


async def test_a_private_address_is_not_asked(tmp_path: Path, settings: Any) -> None:
    await sync_to_async(prepared)(tmp_path)
    receiver = Receiver()
    await told(settings, receiver, notify_private=False)

    notice = await Notice.objects.aget()
    assert (receiver.got, notice.status, notice.attempts) == ([], "pending", 1)
    assert notice.address == "http://localhost", "the path may hold a secret"
    assert "not public" in notice.error


async def test_a_redirect_is_not_followed(tmp_path: Path, settings: Any) -> None:
    await sync_to_async(prepared)(tmp_path)
    receiver = Receiver(status=307, extra="location: /elsewhere\r\n")
    await told(settings, receiver)

    notice = await Notice.objects.aget()
    assert (len(receiver.got), notice.error) == (1, "It answered 307.")


def test_it_is_tried_again_so_many_times(house: House, settings: Any) -> None:
    having(settings, notify_url="https://hooks.example/x", notify_key=KEY)
    writer.run_sync(notices.fan_out)
    pauses, now = [], timezone.now()
    while claimed := writer.run_sync(partial(notices.claim, now)):
        notice = claimed[0]
        writer.run_sync(partial(notices.settle, notice.pk, "It answered 500.", now))
        notice = Notice.objects.get()
        pauses.append((notice.next_at - now).total_seconds())
        now = max(now, notice.next_at) + timedelta(seconds=1)
        Approval.objects.update(expires_at=now + timedelta(hours=1))

    assert [round(pause) for pause in pauses[:-1]] == [10, 40, 160, 640, 2560]
    notice = Notice.objects.get()
    assert (notice.status, notice.attempts, notice.error) == ("failed", 6, "It answered 500.")


def test_what_is_decided_needs_no_message(house: House, settings: Any) -> None:
    having(settings, mail_from="us@example.com")
    writer.run_sync(notices.fan_out)
    Approval.objects.update(status="rejected")
    look()

    assert mail.outbox == []
    assert set(Notice.objects.values_list("status", flat=True)) == {"dropped"}


def test_several_servers_send_once(house: House, settings: Any) -> None:
    having(settings, mail_from="us@example.com", notify_url="https://x.example", notify_key=KEY)
    for _ in range(5):
        make_approval(make_task(house.session))
    writer.run_sync(notices.fan_out)
    writer.run_sync(notices.fan_out)
    first, second = writer.run_sync(notices.claim), writer.run_sync(notices.claim)

    assert (len(first), second) == (6 * 3, [])
    later = timezone.now() + timedelta(seconds=notices.CLAIM_SECONDS + 1)
    assert len(writer.run_sync(lambda: notices.claim(later))) == 6 * 3, "whoever died is followed"


async def test_a_webhook_that_hangs_holds_up_no_run(tmp_path: Path, settings: Any) -> None:
    house = await sync_to_async(runs.make_house)(tmp_path / "desk")
    receiver, notifier = Receiver(hangs=True), notify.Notifier()
    async with receiver.open() as url, house.runner(WRITE, DONE):
        having(settings, notify_url=url, notify_key=KEY, notify_private=True)
        notifier.start()
        try:
            asked = await house.ask()
            await house.until(asked.task_id, "waiting_approval")
            async with asyncio.timeout(10):
                await receiver.arrived.wait()
            await house.reply((await house.pending(asked.task_id)).pk)
            await house.until(asked.task_id, "completed")
        finally:
            await notifier.stop()
    assert (await Notice.objects.aget()).status == "pending"
