"""Paths of this floor."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path, re_path

from streaming.agui.views import run_agent, show_capabilities
from streaming.facade import chat_stream
from streaming.views import session_stream, task_stream
from tasks.api.errors import unknown_path

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/tasks/<str:task_id>/stream", task_stream, name="task_stream"),
    path("api/sessions/<str:session_id>/stream", session_stream, name="session_stream"),
    path("api/stream/<str:session_id>", chat_stream, name="chat_stream"),
    path("agui", run_agent, name="agui"),
    path("agui/capabilities", show_capabilities, name="agui_capabilities"),
    re_path(r"^agui/(?P<path>.*)$", unknown_path),
]
