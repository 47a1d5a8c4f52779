"""Requests as Django gets them: by token or by cookie."""

from __future__ import annotations

from http.cookies import SimpleCookie

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client, RequestFactory

CSRF = "c" * 32


def with_token(token: str, **headers: str) -> HttpRequest:
    return RequestFactory().get(
        "/api/tasks", headers={"Authorization": f"Bearer {token}", **headers}
    )


def with_cookie(user: User, method: str = "GET", **headers: str) -> HttpRequest:
    client = Client()
    client.force_login(user)
    request = RequestFactory(enforce_csrf_checks=True).generic(
        method, "/api/tasks", headers=headers
    )
    request.COOKIES = {name: morsel.value for name, morsel in SimpleCookie(client.cookies).items()}
    request.COOKIES["csrftoken"] = CSRF
    return request
