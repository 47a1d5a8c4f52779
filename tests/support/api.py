"""The API as a client calls it."""

from __future__ import annotations

from typing import Any

from django.test import Client

from tasks.models import Approval


def post(client: Client, path: str, body: Any = None, **headers: str) -> Any:
    return client.post(path, body or {}, content_type="application/json", headers=headers or None)


def resolve(client: Client, approval: Approval, **reply: Any) -> Any:
    return post(client, f"/api/approvals/{approval.id}/resolve", reply)


def code(response: Any) -> tuple[int, str]:
    """Of a refusal: its status and its code."""
    return response.status_code, response.json()["error"]["code"]
