"""Paths of this floor."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from tasks import signin

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("tasks.api")),
    path("sign-in/<str:token>", signin.sign_in, name="sign-in"),
]
