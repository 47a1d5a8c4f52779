"""Inbound webhooks: what another program sends becomes a task. Creates tasks, runs nothing.

The rules:

1. Whoever sends proves that they know the secret: `Authorization: Bearer`, a signature of Standard
   Webhooks, or GitHub's. Unknown, disabled, and not proved look the same, and take as long.
2. What was sent is data: the goal is the webhook's own, the body stands behind it between marks.
3. The same delivery twice is the same task. A signature is good for five minutes, or its body
   names the delivery (GitHub's has no time): a recorded one makes nothing new.
4. Nobody watches: the mode is the server's for unattended tasks, or stricter, and writes wait.
5. A delivery opens a session, or goes on in one that this webhook opened.
6. An owner who is inactive or has lost the workspace pauses the webhook, with a reason.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import transaction
from django.utils import timezone

from agent.text import clean, cut
from tasks import access, audit, goals, rates, secrets, service, signatures, unattended, wiring
from tasks.commands import Created, TaskRequest, title_of
from tasks.conf import conf
from tasks.counters import counters
from tasks.errors import Invalid, NotFound, ServiceError
from tasks.gist import gist
from tasks.models import Task, Webhook, WebhookDelivery
from tasks.writer import writer

logger = logging.getLogger(__name__)

MAX_BODY = 48 * 1024
"""Bytes. With the longest goal it stays below `service.MAX_GOAL_CHARS`."""
TOLERANCE_SECONDS = 300
"""Between the sender's clock and ours, as Standard Webhooks recommends."""
MAX_SENDER_ID = 200
DELIVERIES_KEPT = timedelta(days=90)
"""Older ones are forgotten with the next one; their tasks stay."""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A request, as it came."""

    headers: Mapping[str, str]
    """Names in any case."""
    body: bytes
    follow_up_of: str = ""
    """A task in whose session it belongs."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """That the sender knows the secret, and what they call the delivery."""

    sender_id: str = ""
    """Empty: they do not say."""
    moment: str = ""
    """Seconds since 1970, where they say when they signed it."""


async def receive(webhook_id: str, sent: Sent) -> Created:
    """The task of a delivery. Raises ServiceError."""
    webhook, proof = await sync_to_async(_admitted)(webhook_id, sent)
    _check_moment(proof)
    await asyncio.to_thread(_slow_down, webhook)  # in scale-out it waits for Redis
    try:
        created = await service.create(await sync_to_async(_request)(webhook, proof, sent))
    except ServiceError as refusal:
        reason = refusal.message
        await _note(webhook, proof, sent, WebhookDelivery.Outcome.REFUSED, reason=reason)
        raise
    again = created.replayed
    outcome = WebhookDelivery.Outcome.REPEATED if again else WebhookDelivery.Outcome.CREATED
    await _note(webhook, proof, sent, outcome, task_id=created.task_id)
    return created


# ── who sends ─────────────────────────────────────────────────────────────────────────────────


def _admitted(webhook_id: str, sent: Sent) -> tuple[Webhook, Proof]:
    """Raises NotFound, with nothing in it that says why."""
    identity = access.parse_id(webhook_id, "webhook")
    webhook = Webhook.objects.select_related("owner").filter(pk=identity).first()
    # Where there is none a secret that nobody knows is tried: it must not be the faster answer.
    proof = proof_in(sent, _secret_of(webhook))
    if webhook is None or proof is None:
        logger.info("A delivery to %s was refused: no such webhook, or no proof.", identity)
        raise NotFound("webhook")
    reason = unattended.why_not(webhook) if webhook.enabled else ""
    if reason:
        writer.run_sync(partial(unattended.pause, webhook, reason))
    if reason or not webhook.enabled:
        raise NotFound("webhook")
    return webhook, proof


def _secret_of(webhook: Webhook | None) -> str:
    stored = webhook.secret if webhook is not None else ""
    try:
        return secrets.unseal(stored or _decoy())
    except secrets.SecretUnreadable:
        logger.error("The secret of the webhook %s is of another PILOTHOUSE_SECRETS_KEY.", webhook)
        return signatures.new_secret()


@cache
def _decoy() -> str:
    return secrets.seal(signatures.new_secret())


def proof_in(sent: Sent, secret: str) -> Proof | None:
    """How the request proves the secret; None: it does not."""
    names = ("authorization", "webhook-id", "webhook-timestamp", "webhook-signature")
    credential, message_id, moment, signature = (sent.headers.get(name, "") for name in names)
    scheme, _, token = credential.partition(" ")
    if scheme.lower() == "bearer":
        given = sent.headers.get("idempotency-key", "") or message_id
        return Proof(sender_id=given) if signatures.same(token.strip(), secret) else None
    if signature:
        expected = signatures.standard(signatures.key_of(secret), message_id, moment, sent.body)
        good = any(signatures.same(each, expected) for each in signature.split())
        # With a full stop in it the same signed text could be cut into other parts. Without a name
        # a recorded request would make a task each time that it is sent again.
        name = message_id or f"sha256:{hashlib.sha256(expected.encode()).hexdigest()}"
        said = Proof(sender_id=name, moment=moment or "0")
        return said if good and "." not in message_id + moment else None
    hub = sent.headers.get("x-hub-signature-256", "")
    if not signatures.same(hub, signatures.hub(secret, sent.body)):
        return None
    # Only the body is signed: X-GitHub-Delivery could be made up for a recorded one.
    return Proof(sender_id=f"sha256:{hashlib.sha256(sent.body).hexdigest()}")


def _check_moment(proof: Proof) -> None:
    if not proof.moment:
        return
    moment = int(proof.moment) if proof.moment.isdecimal() and len(proof.moment) < 16 else 0
    if abs(timezone.now().timestamp() - moment) > TOLERANCE_SECONDS:
        message = f"webhook-timestamp is more than {TOLERANCE_SECONDS} s away from this clock."
        raise Invalid("webhook_timestamp", message)


def _slow_down(webhook: Webhook) -> None:
    """Raises TooMany."""
    rates.take(counters(), "deliveries", str(webhook.pk), conf().max_deliveries_per_minute)


# ── what it becomes ───────────────────────────────────────────────────────────────────────────


def _request(webhook: Webhook, proof: Proof, sent: Sent) -> TaskRequest:
    session_id, follow_up_of = _place(webhook, sent.follow_up_of)
    mode = wiring.mode_of(Task.Trigger.WEBHOOK, webhook.mode) if webhook.mode else ""
    return TaskRequest(
        goal=goal_of(webhook, sent.body),
        title=_title(webhook, sent.body),
        owner_id=webhook.owner_id,
        by=webhook.owner.get_username(),
        trigger=Task.Trigger.WEBHOOK,
        session_id=session_id,
        workspace_id=None if session_id else webhook.workspace_id,
        follow_up_of=follow_up_of,
        when_busy="queue",
        mode=mode,
        model_profile_id=webhook.model_profile_id,
        idempotency_key=_key(webhook, proof),
        body_digest=hashlib.sha256(f"{sent.follow_up_of}\n".encode() + sent.body).hexdigest(),
    )


def goal_of(webhook: Webhook, body: bytes) -> str:
    """The webhook's goal, and behind it what was delivered, marked as data. Raises Invalid."""
    try:
        text = clean(body.decode("utf-8"))
    except UnicodeDecodeError:
        raise Invalid("invalid", "The body is not text in UTF-8.") from None
    if not text.strip():
        return webhook.goal
    return goals.with_data(webhook.goal, text, goals.WEBHOOK)


_INNER_QUOTES = str.maketrans("“”", '""')
"""The sender's words do not end where they say: what follows would be taken for ours."""
_ENDS = tuple(".:!?。：！？")  # noqa: RUF001 - as a goal in Chinese ends
"""A goal that ends so needs no colon behind it."""


def _title(webhook: Webhook, body: bytes) -> str:
    """Of the session that it opens: all of one webhook would be called the same by their goal."""
    said = gist(clean(body.decode("utf-8", "replace")))
    goal = title_of(webhook.goal)
    if not said:
        return goal
    colon = "" if goal.endswith(_ENDS) else ":"
    return f"{goal}{colon} “{said.translate(_INNER_QUOTES)}”"


def _place(webhook: Webhook, follow_up_of: str) -> tuple[UUID | None, UUID | None]:
    """Session and task that it follows: one that a delivery to this webhook opened, that its owner
    still works in. Raises NotFound."""
    if not follow_up_of:
        return None, None
    owner = access.principal_of(webhook.owner)
    task = access.find_task(owner, follow_up_of, access.WRITERS)
    opened = Task.objects.filter(session_id=task.session_id, deliveries__webhook=webhook)
    if not opened.exists():
        raise NotFound("task")
    return task.session_id, task.pk


def _key(webhook: Webhook, proof: Proof) -> str:
    """Names the delivery among all tasks of the owner; empty: it is a new one."""
    if not proof.sender_id:
        return ""
    return f"webhook:{webhook.pk}:{hashlib.sha256(proof.sender_id.encode()).hexdigest()}"


async def _note(
    webhook: Webhook,
    proof: Proof,
    sent: Sent,
    outcome: WebhookDelivery.Outcome,
    *,
    reason: str = "",
    task_id: UUID | None = None,
) -> None:
    delivery = WebhookDelivery(
        webhook=webhook,
        sender_id=cut(clean(proof.sender_id), MAX_SENDER_ID),
        size=len(sent.body),
        outcome=outcome,
        reason=reason,
        task_id=task_id,
    )
    await writer.run(partial(_store, delivery))


def _store(delivery: WebhookDelivery) -> None:
    """Command: kept for whoever asks what became of it."""
    if not Webhook.objects.filter(pk=delivery.webhook_id).exists():
        return  # deleted meanwhile, with all that came
    delivery.save(force_insert=True)
    kept_since = delivery.created_at - DELIVERIES_KEPT
    delivery.webhook.deliveries.filter(created_at__lt=kept_since).delete()


# ── changing ──────────────────────────────────────────────────────────────────────────────────


def renew_secret(webhook: Webhook, by: str) -> str:
    """A new secret; the one before is worth nothing from now on. The only time that it can be read."""
    secret, had = signatures.new_secret(), bool(webhook.secret)
    sealed = secrets.seal(secret)
    with transaction.atomic():
        Webhook.objects.filter(pk=webhook.pk).update(secret=sealed)
        audit.record(
            audit.Change(
                action="webhook.secret_made",
                by=by,
                object_type="webhook",
                object_id=str(webhook.pk),
                name=webhook.name,
                before={"secret": audit.MASK if had else ""},
                after={"secret": audit.MASK},
            )
        )
    return secret
