"""Signing in with a local account, and out.

Guessing is slowed down per name and address, and per address: a few failures, then a pause. The
counters live in this process's cache; they are a brake, not a lock.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse

PAUSE_SECONDS = 300
TRIES_PER_NAME = 5
TRIES_PER_ADDRESS = 50


class SignIn(LoginView):
    """`registration/login.html`; afterwards `?next=`, if it is ours, or home."""

    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if _tired(request):
            context = self.get_context_data(form=AuthenticationForm(request), paused=True)
            response = self.render_to_response(context, status=429)
            response["Retry-After"] = str(PAUSE_SECONDS)
            return response
        return super().post(request, *args, **kwargs)

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        for key in _keys(self.request):
            cache.add(key, 0, PAUSE_SECONDS)
            cache.incr(key)
        return super().form_invalid(form)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        cache.delete(next(iter(_keys(self.request))))
        return super().form_valid(form)


def _tired(request: HttpRequest) -> bool:
    return any(cache.get(key, 0) >= most for key, most in _keys(request).items())


def _keys(request: HttpRequest) -> dict[str, int]:
    """What is counted, and how many failures it may have."""
    address = str(request.META.get("REMOTE_ADDR", ""))
    name = request.POST.get("username", "").strip().lower()
    return {
        _key("name", name, address): TRIES_PER_NAME,
        _key("address", address): TRIES_PER_ADDRESS,
    }


def _key(*parts: str) -> str:
    return "sign-in:" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
