"""Proofs that a body comes from somebody who knows a secret, as senders of webhooks write them.

Two ways: Standard Webhooks (`webhook-id`, `webhook-timestamp`, and `v1,` with the base64 of
HMAC-SHA256 over `id.timestamp.body`) and GitHub's `X-Hub-Signature-256` (the hex of HMAC-SHA256
over the body). The first signs with the bytes that a `whsec_` secret stands for, the second with
the secret's own text, so that no signature of the one is ever one of the other.
"""

from __future__ import annotations

import base64
import hmac
import secrets

PREFIX = "whsec_"
RANDOM_BYTES = 32


def new_secret() -> str:
    """`whsec_` and the base64 of random bytes."""
    return PREFIX + base64.b64encode(secrets.token_bytes(RANDOM_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """The bytes that a secret of ours stands for."""
    return base64.b64decode(secret.removeprefix(PREFIX))


def standard(key: bytes, message_id: str, moment: str, body: bytes) -> str:
    """`webhook-signature` for these three."""
    signed = hmac.digest(key, f"{message_id}.{moment}.".encode() + body, "sha256")
    return f"v1,{base64.b64encode(signed).decode()}"


def hub(secret: str, body: bytes) -> str:
    """`X-Hub-Signature-256` for the body."""
    return f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"


def same(one: str, other: str) -> bool:
    """Compared in a time that says nothing of where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
