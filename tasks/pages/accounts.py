"""Signing in with a local account, and out.

Guessing is slowed down per name and address, and per address: a few failures, then a pause. Who
guesses from elsewhere locks nobody out: a brake, not a lock (`tasks.counters`).
"""

from __future__ import annotations

import hashlib
import logging
import unicodedata
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from tasks import addresses
from tasks.conf import conf
from tasks.counters import counters

NAMES_PER_ADDRESS = 10
"""So many times the tries of one name are an address's for all names together."""

logger = logging.getLogger(__name__)


class SignIn(LoginView):
    """`registration/login.html`; afterwards `?next=`, if it is ours, or home."""

    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if _tired(request) or not _counted(request):
            logger.warning(
                "Signing in is paused for %s.", addresses.client_of(request) or "somebody"
            )
            context = self.get_context_data(form=AuthenticationForm(request), paused=True)
            response = self.render_to_response(context, status=429)
            response["Retry-After"] = str(conf().sign_in_pause_seconds)
            return response
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        name, address = _keys(self.request)
        counters().forget(name)
        counters().give_back(address)
        return super().form_valid(form)


def admin_sign_in(request: HttpRequest) -> HttpResponse:
    """The admin has no door of its own: one page signs in, and slows guessing down."""
    if request.user.is_authenticated and not request.user.is_staff:
        raise PermissionDenied
    return redirect(reverse("sign-in-form", query=request.GET))


def _tired(request: HttpRequest) -> bool:
    keys = _keys(request)
    failures = counters().tallies(list(keys))
    return any(count >= most for count, most in zip(failures, keys.values(), strict=True))


def _counted(request: HttpRequest) -> bool:
    """Counts the try before the password is looked at: of many at once no more get through than of
    one after the other. What was right is given back; False, and nothing counted: it is too many."""
    keys, pause = _keys(request), conf().sign_in_pause_seconds
    counts = [counters().tally(key, pause) for key in keys]
    if all(count <= most for count, most in zip(counts, keys.values(), strict=True)):
        return True
    for key in keys:
        counters().give_back(key)
    return False


def _keys(request: HttpRequest) -> dict[str, int]:
    """What is counted, and how many failures it may have."""
    address = addresses.household(addresses.client_of(request))
    tries = conf().sign_in_tries
    # As the form reads it: what signs in as one name is counted as one.
    name = unicodedata.normalize("NFKC", request.POST.get("username", "")).strip().lower()
    return {
        _key("name", name, address): tries,
        _key("address", address): tries * NAMES_PER_ADDRESS,
    }


def _key(*parts: str) -> str:
    return "sign-in:" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
