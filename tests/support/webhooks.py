"""Webhooks and those who send to them, each in the way of its kind."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import Any

import pytest
from django.test import Client

from tasks import signatures, webhooks
from tasks.models import Webhook
from tests.support.rows import make_user, make_workspace

pytestmark = pytest.mark.usefixtures("nothing_counted")

BODY = b'{"action": "opened", "number": 7}'


def make_webhook(**fields: Any) -> tuple[Webhook, str]:
    """With its secret."""
    fields.setdefault("owner", fields["workspace"].owner if "workspace" in fields else make_user())
    fields.setdefault("workspace", None)
    workspace = fields.pop("workspace") or make_workspace(fields["owner"])
    fields = {"name": "issues", "goal": "Sort this issue", **fields}
    webhook = Webhook.objects.create(workspace=workspace, **fields)
    secret = webhooks.renew_secret(webhook, "alice")
    webhook.refresh_from_db()
    return webhook, secret


def send(webhook: Any, headers: dict[str, str], body: bytes = BODY, query: str = "") -> Any:
    path = f"/api/webhooks/{getattr(webhook, 'pk', webhook)}{query}"
    return Client().post(path, body, content_type="application/json", headers=headers)


def token(secret: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}", **more}


def signed(
    secret: str, body: bytes = BODY, *, name: str = "msg_1", at: float = 0
) -> dict[str, str]:
    """As a sender of Standard Webhooks signs."""
    moment = str(int(at or time.time()))
    signature = signatures.standard(signatures.key_of(secret), name, moment, body)
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": signature}


def hub(secret: str, body: bytes = BODY, delivery: str = "") -> dict[str, str]:
    """As GitHub signs."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": delivery}


def refused(answer: Any, status: int, code: str) -> str:
    assert answer.status_code == status, answer.content
    error = answer.json()["error"]
    assert error["code"] == code
    return str(error["message"])
