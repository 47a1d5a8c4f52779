"""Paths of this floor."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from streaming.facade import chat_stream
from streaming.views import session_stream, task_stream

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/tasks/<str:task_id>/stream", task_stream, name="task_stream"),
    path("api/sessions/<str:session_id>/stream", session_stream, name="session_stream"),
    path("api/stream/<str:session_id>", chat_stream, name="chat_stream"),
]
