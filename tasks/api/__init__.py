"""The JSON API: short operations that parse, authorise, call the service and answer.

Every operation is behind `Identity`, but webhooks, whose senders prove a secret; every refusal has one
shape (`errors`); `/api/openapi.json` and `/api/docs` come from the same types that check the requests
(`schemas`).
"""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path, re_path
from django.views.decorators.csrf import ensure_csrf_cookie

from tasks.api import (
    approvals,
    artifacts,
    background,
    chat,
    errors,
    exports,
    files,
    health,
    models,
    rules,
    sessions,
    tasks,
    tokens,
    undo,
    usage,
    webhooks,
    workspaces,
)
from tasks.api.beside import Api
from tasks.api.edge import Identity, JsonParser, JsonRenderer

api = Api(
    title="Pilothouse",
    version="1",
    description="Post a goal, follow its events, decide what may happen.",
    urls_namespace="api",
    auth=Identity(),
    parser=JsonParser(),
    renderer=JsonRenderer(),
    docs_decorator=ensure_csrf_cookie,
)
errors.install(api)
api.add_router("/tasks", tasks.router)
api.add_router("/tasks", artifacts.of_task)
api.add_router("/tasks", exports.of_task)
api.add_router("/tasks", undo.of_task)
api.add_router("/artifacts", artifacts.router)
api.add_router("/approvals", approvals.router)
api.add_router("/rules", rules.router)
api.add_router("/sessions", sessions.router)
api.add_router("/sessions", exports.of_session)
api.add_router("/workspaces", workspaces.router)
api.add_router("/workspaces", files.router)
api.add_router("/workspaces", background.router)
api.add_router("/models", models.router)
api.add_router("/usage", usage.router)
api.add_router("/tokens", tokens.router)
api.add_router("/webhooks", webhooks.router)
api.add_router("", chat.router)


def _operations() -> tuple[list[Any], str, str]:
    patterns, app, namespace = api.urls
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = errors.in_our_shape(pattern.callback)
    return patterns, app, namespace


urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("api/", errors.unknown_path),  # ninja would answer with a page
    path("api/", _operations()),
    re_path(r"^api/(?P<path>.*)$", errors.unknown_path),
]
