"""Deciding by the link in a mail: GET shows, POST decides.

The link is signed, names one person and one approval, and grows old. It opens nothing by itself:
whoever follows it must be signed in as that person and still be one who may decide.
"""

from __future__ import annotations

import json
from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.decorators import login_required
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from agent.text import visible
from tasks import access, decisions, goals, quorum
from tasks.approvals import Reply
from tasks.errors import NotFound, ServiceError
from tasks.models import Approval
from tasks.notify import LINK_SALT
from tasks.pages.boot import reader_of
from tasks.told import told, told_evidence
from tasks.words import say
from tasks.writer import WriterUnavailable

MAX_AGE_SECONDS = 7 * 24 * 3600
_RISKS = {"low": "Low", "medium": "Medium", "high": "High"}
_STATES = {
    "pending": "Pending",
    "approved": "Approved",
    "rejected": "Rejected",
    "expired": "Expired",
    "stale": "Asked again",
    "cancelled": "Withdrawn",
}
_GONE = "This link is not good any more, or it is for somebody else."


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def decide(request: HttpRequest, signed: str) -> HttpResponse:
    approval = _named_by(request, signed)
    if request.method != "POST":
        return _page(request, approval)
    reader = reader_of(request)
    try:
        async_to_sync(decisions.resolve)(approval.pk, reader.user_id, reply_of(request))
    except ServiceError as refusal:
        return _page(request, approval, _words(refusal), status=refusal.status)
    except WriterUnavailable:
        return _page(
            request, approval, say("Nothing was decided. Try again in a moment."), status=503
        )
    return _page(request, approval)


def reply_of(request: HttpRequest) -> Reply:
    """A button's value is its decision, with the answer behind a colon where one is needed."""
    decision, _, answer = request.POST.get("decision", "").partition(":")
    said = request.POST.get("answer", "") if decision == "approve" else ""
    comment = request.POST.get("comment", "")
    scope = request.POST.get("scope", "once")
    return Reply(decision=decision, answer=answer or said, comment=comment, scope=scope)


def _named_by(request: HttpRequest, signed: str) -> Approval:
    try:
        approval_id, user_id = signing.loads(signed, salt=LINK_SALT, max_age=MAX_AGE_SECONDS)
    except (signing.BadSignature, ValueError) as error:
        raise Http404(_GONE) from error
    reader = reader_of(request)
    if user_id != reader.user_id:
        raise Http404(_GONE)
    try:
        return access.find_approval(reader, approval_id, access.APPROVERS)
    except NotFound as error:
        raise Http404(_GONE) from error


def _page(
    request: HttpRequest, approval: Approval, refused: str = "", status: int = 200
) -> HttpResponse:
    """As it is stored now."""
    rows = Approval.objects.select_related("task__session", "resolved_by")
    now = rows.get(pk=approval.pk)
    reader = reader_of(request)
    refusal = quorum.refusal(now, quorum.rights_of(reader.user_id))
    context: dict[str, Any] = {
        "approval": now,
        "goal": visible(goals.plain(now.task.goal)),
        "diff": told_evidence(visible(now.diff)),
        "reason": told(visible(now.reason)),
        "risk": say(_RISKS.get(now.risk, now.risk)),
        "state": say(_STATES[now.status]),
        "arguments": visible(json.dumps(now.arguments, indent=2, ensure_ascii=False)),
        "open": now.status == Approval.Status.PENDING,
        "refused": refused,
        "only_reject": _words(refusal) if refusal is not None else "",
        "voted": any(vote["user_id"] == reader.user_id for vote in now.votes),
        "successor": now.replaced_by_id,
    }
    return render(request, "app/decide.html", context, status=status)


def _words(refusal: ServiceError) -> str:
    """In the reader's language, as the scripts say it."""
    details = refusal.details or {}
    match refusal.code:
        case "not_an_approver" if "group" in details:
            return say("Only members of the group {group} approve this.", group=details["group"])
        case "own_request":
            return say("You asked for this task: somebody else has to approve it.")
        case "expired":
            return say("Nobody answered in time, so it counts as rejected.")
        case "already_resolved":
            return say("It was decided before your answer.")
        case "stale":
            return say("The target changed after you were asked.")
        case _:
            return told(refusal.message)
