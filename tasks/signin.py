"""One-time sign-in links: for whoever may open the database and has no password yet.

A link is good once, for ten minutes; the database keeps only its hash. Opening it shows a page
with a button and changes nothing, so that a mail scanner or a preview does not use it up; the
button signs in.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth import login
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods

from tasks import audit
from tasks.conf import conf
from tasks.models import SignInLink

MINUTES = 10
TOKEN_BYTES = 32
AFTER = "/"


def make_link(user: User) -> str:
    """A new link. This is the only time that it can be read."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    expires_at = timezone.now() + timedelta(minutes=MINUTES)
    SignInLink.objects.filter(expires_at__lt=timezone.now()).delete()
    with transaction.atomic():
        SignInLink.objects.create(user=user, digest=_digest(token), expires_at=expires_at)
        audit.note(
            audit.Change(
                action="user.link_made",
                object_type="user",
                object_id=str(user.pk),
                name=user.get_username(),
                after={"expires_at": audit.moment_text(expires_at)},
            )
        )
    return f"{conf().public_url.rstrip('/')}/sign-in/{token}"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_variables("token")
def sign_in(request: HttpRequest, token: str) -> HttpResponse:
    link = _good(token).select_related("user").first()
    if request.method == "POST" and link is not None:
        # Two presses of the button: one of them finds the link unused.
        used = _good(token).update(used_at=timezone.now())
        if used:
            login(request, link.user)
            return redirect(AFTER)
        link = None
    status = 200 if link is not None else 404
    response = render(
        request, "registration/link.html", {"link": link, "minutes": MINUTES}, status=status
    )
    # The address is the secret: no other site gets it. "no-referrer" would make the form's Origin null.
    response["Referrer-Policy"] = "same-origin"
    return response


def _good(token: str) -> QuerySet[SignInLink]:
    return SignInLink.objects.filter(
        digest=_digest(token),
        used_at=None,
        expires_at__gt=timezone.now(),
        user__is_active=True,
    )


def _digest(token: str) -> str:
    """256 random bits need no salt."""
    return hashlib.sha256(token.encode()).hexdigest()
