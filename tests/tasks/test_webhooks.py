"""What other programs send: proved or not there, once each, as data, in their owner's name."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tasks import audit, secrets, signatures, webhooks
from tasks.errors import NotFound
from tasks.models import AuditEntry, Session, Task, Webhook, WebhookDelivery
from tests.support.counting import python_calls
from tests.support.people import bearer
from tests.support.profiles import make_profile
from tests.support.webhooks import BODY, hub, make_webhook, refused, send, signed, token

pytestmark = pytest.mark.usefixtures("nothing_counted")
rows = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
"""For what makes a task or pauses a webhook: that goes through the writer's thread."""


@committed
def test_a_delivery_is_a_task_of_the_owner_in_a_session_of_its_own() -> None:
    webhook, secret = make_webhook(model_profile=make_profile())
    answer = send(webhook, token(secret))
    assert answer.status_code == 202, answer.content
    task = Task.objects.select_related("session").get()
    assert answer.json()["id"] == str(task.pk)
    assert (task.trigger, task.created_by, task.owner) == ("webhook", webhook.owner, webhook.owner)
    assert task.workspace == webhook.workspace
    assert task.session.model_profile == webhook.model_profile
    assert task.goal.startswith("Sort this issue\n\nWhat was delivered:\n<untrusted ")
    assert BODY.decode() in task.goal
    delivery = WebhookDelivery.objects.get()
    assert (delivery.outcome, delivery.task, delivery.size) == ("created", task, len(BODY))
    send(webhook, token(secret))
    assert Session.objects.count() == 2


# ── who sends ─────────────────────────────────────────────────────────────────────────────────


def test_the_signatures_are_those_of_the_field() -> None:
    """The examples of the two specifications."""
    key = signatures.key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    name, moment = "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330"
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signatures.standard(key, name, moment, b'{"test": 2432232314}') == expected
    said = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert signatures.hub("It's a Secret to Everybody", b"Hello, World!") == said


@committed
@pytest.mark.parametrize("sign", [signed, hub, lambda secret, _=b"": token(secret)])
def test_each_way_to_prove_the_secret_opens_it_and_no_other_secret_does(sign: Any) -> None:
    webhook, secret = make_webhook()
    assert send(webhook, sign(signatures.new_secret())).status_code == 404
    assert send(webhook, sign(secret)).status_code == 202
    assert Task.objects.count() == WebhookDelivery.objects.count() == 1


@rows
@pytest.mark.parametrize("sign", [signed, hub])
def test_a_signature_is_for_these_bytes(sign: Any) -> None:
    webhook, secret = make_webhook()
    refused(send(webhook, sign(secret), BODY + b" "), 404, "not_found")


@rows
def test_no_signature_of_one_way_is_one_of_the_other() -> None:
    """Else what was signed with a time could be sent again, at any time, as a body of GitHub's."""
    webhook, secret = make_webhook()
    headers = signed(secret, at=time.time() - 3600)
    body = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + BODY
    given = base64.b64decode(headers["webhook-signature"].removeprefix("v1,")).hex()
    refused(send(webhook, {"x-hub-signature-256": f"sha256={given}"}, body), 404, "not_found")


@rows
def test_the_parts_of_a_signed_text_cannot_be_cut_anew() -> None:
    webhook, secret = make_webhook()
    body = f"{int(time.time())}.hello".encode()
    headers = signed(secret, body, name="msg", at=time.time() - 3600)
    headers["webhook-id"] = f"msg.{headers['webhook-timestamp']}"
    headers["webhook-timestamp"], _, rest = body.decode().partition(".")
    refused(send(webhook, headers, rest.encode()), 404, "not_found")


@rows
@pytest.mark.parametrize("seconds", [-3600, -301, 301, 10**9])
def test_a_signature_of_another_time_makes_nothing(seconds: int) -> None:
    webhook, secret = make_webhook()
    answer = send(webhook, signed(secret, at=time.time() + seconds + (5 if seconds > 0 else -5)))
    refused(answer, 400, "webhook_timestamp")
    assert not Task.objects.exists()


@rows
@pytest.mark.parametrize("moment", ["", "now", "1e9", "٣", "9" * 4000])
def test_a_moment_that_is_none_makes_nothing(moment: str) -> None:
    webhook, secret = make_webhook()
    signature = signatures.standard(signatures.key_of(secret), "a", moment, BODY)
    headers = {"webhook-id": "a", "webhook-timestamp": moment, "webhook-signature": signature}
    if not moment.isascii():
        headers["webhook-timestamp"] = moment.encode().decode("latin-1")
    assert send(webhook, headers).status_code in (400, 404)
    assert not Task.objects.exists()


@committed
def test_of_several_signatures_one_is_enough() -> None:
    """A sender whose secret is being changed signs with both."""
    webhook, secret = make_webhook()
    headers = signed(secret)
    headers["webhook-signature"] = f"v1a,x v1,eHg= {headers['webhook-signature']}"
    assert send(webhook, headers).status_code == 202


def everybody_refused(webhook: Webhook, secret: str) -> Iterator[tuple[str, Any, dict[str, str]]]:
    _, others_secret = make_webhook()
    off, secret_of_off = make_webhook(enabled=False)
    bare, _ = make_webhook()
    Webhook.objects.filter(pk=bare.pk).update(secret="")
    lost, secret_of_lost = make_webhook()
    Webhook.objects.filter(pk=lost.pk).update(secret=f"{secrets.SEALED}abc")
    yield "unknown", uuid4(), token(secret)
    yield "malformed", "x", token(secret)
    yield "without proof", webhook, {}
    yield "another's secret", webhook, token(others_secret)
    yield "another's signature", webhook, signed(others_secret)
    yield "nothing known", webhook, token("")
    yield "an API token of the owner", webhook, bearer(webhook.owner)
    yield "disabled", off, token(secret_of_off)
    yield "without a secret", bare, token("")
    yield "sealed with another key", lost, token(secret_of_lost)
    yield "strange bytes", webhook, {"authorization": "Bearer \u00ff\udcff"[:8]}


@rows
def test_unknown_foreign_and_disabled_look_the_same() -> None:
    webhook, secret = make_webhook()
    answers = {
        name: send(row, headers) for name, row, headers in everybody_refused(webhook, secret)
    }
    assert {answer.status_code for answer in answers.values()} == {404}
    assert len({answer.content for answer in answers.values()}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in answers.values()}) == 1
    assert not Task.objects.exists()
    assert not WebhookDelivery.objects.exists()


@rows
def test_to_refuse_takes_the_same_work_whether_there_is_one_or_not() -> None:
    """Counted, not timed: the same questions to the database, the same calls of ours."""
    webhook, _ = make_webhook()

    def work(identity: Any) -> tuple[int, list[str]]:
        sent = webhooks.Sent(headers=signed(signatures.new_secret()), body=BODY)
        with (
            CaptureQueriesContext(connection) as asked,
            python_calls() as names,
            pytest.raises(NotFound),
        ):
            webhooks._admitted(str(identity), sent)
        proving = ("Fernet", "standard", "same", "key_of", "proof_in", "unseal")
        return len(asked), [name for name in names if name.startswith(proving)]

    work(uuid4())
    there, nowhere = work(webhook.pk), work(uuid4())
    assert there == nowhere
    assert there[0] == 1
    assert "standard" in there[1]


@rows
def test_a_signed_in_browser_is_nobody_here() -> None:
    """So no page of somebody else's can post with a cookie."""
    webhook, _ = make_webhook()
    client = Client(enforce_csrf_checks=True)
    client.force_login(webhook.owner)
    answer = client.post(f"/api/webhooks/{webhook.pk}", BODY, content_type="text/plain")
    refused(answer, 404, "not_found")


@rows
def test_the_database_alone_does_not_give_the_secret_away(settings: Any) -> None:
    webhook, secret = make_webhook()
    assert secret not in webhook.secret
    assert secrets.unseal(webhook.secret) == secret
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, secrets_key=bytes(32))
    refused(send(webhook, token(secret)), 404, "not_found")


@committed
def test_a_new_secret_ends_the_old_one_and_the_audit_shows_neither() -> None:
    webhook, old = make_webhook()
    new = webhooks.renew_secret(webhook, "alice")
    assert send(webhook, token(old)).status_code == 404
    assert send(webhook, token(new)).status_code == 202
    entries = AuditEntry.objects.filter(action="webhook.secret_made")
    assert entries.count() == 2
    for entry in entries:
        assert not any(text in entry.details for text in (old, new, "sealed:"))
    assert audit.verify().problem == ""
