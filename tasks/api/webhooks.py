"""Where other programs send what becomes a task. They prove a secret of the webhook; no cookie and
no API token opens this."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router
from ninja.responses import Status

from tasks import webhooks
from tasks.api.edge import take_body
from tasks.api.schemas import CreatedOut, ErrorOut

router = Router(tags=["webhooks"], auth=None)

ANSWERS: dict[Any, Any] = {202: CreatedOut, frozenset({400, 404, 409, 413, 429}): ErrorOut}
SENT = {
    "requestBody": {
        "description": f"Text in UTF-8 of at most {webhooks.MAX_BODY:,} bytes, of any type.",
        "content": {"*/*": {"schema": {"type": "string"}}},
    }
}


@router.post("/{webhook_id}", response=ANSWERS, openapi_extra=SENT)
async def deliver(
    request: HttpRequest,
    webhook_id: str,
    follow_up_of: Annotated[str, Query()] = "",
) -> Status[CreatedOut]:
    """Deliver something. The webhook's goal becomes a task with the body as its data.

    Prove the secret by `Authorization: Bearer`, by the headers of Standard Webhooks, or by GitHub's
    `X-Hub-Signature-256`; without that there is no such webhook. The same delivery twice gets the
    same answer. `follow_up_of` names a task that came of a delivery: this one goes on after it.
    """
    take_body(request, webhooks.MAX_BODY)
    sent = webhooks.Sent(headers=request.headers, body=request.body, follow_up_of=follow_up_of)
    return Status(202, CreatedOut.of(await webhooks.receive(webhook_id, sent)))
