"""No route, no body and no query serves somebody else's object.

The test walks the URL conf: a route with an id that has no sample here fails it. For each, a
stranger, a member of staff without rights and nobody at all must get exactly what an id gets that
does not exist.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from tasks import webhooks
from tasks.api import api
from tasks.models import ApiToken, Approval, Artifact, PolicyRule, Session, Task, Webhook
from tests.support.agui import run_input
from tests.support.people import House, bearer
from tests.support.routes import url_conf
from tests.support.rows import make_session, make_user, make_workspace

pytestmark = pytest.mark.django_db

REPLY = {"decision": "reject"}
SHA256_OF_A = hashlib.sha256(b"a").hexdigest()
ROUTES: dict[tuple[str, str], Any] = {
    ("get", "/api/tasks/{task_id}"): None,
    ("get", "/api/tasks/{task_id}/events"): None,
    ("get", "/api/tasks/{task_id}/events/{sequence}"): None,
    ("get", "/api/tasks/{task_id}/events/{sequence}/undo"): None,
    ("post", "/api/tasks/{task_id}/events/{sequence}/undo"): {"digest": "x"},
    ("get", "/api/tasks/{task_id}/stream"): None,
    ("get", "/api/tasks/{task_id}/artifacts"): None,
    ("get", "/api/tasks/{task_id}/export"): None,
    ("get", "/api/artifacts/{artifact_id}"): None,
    ("post", "/api/tasks/{task_id}/cancel"): {},
    ("post", "/api/tasks/{task_id}/retry"): {},
    ("post", "/api/tasks/{task_id}/messages"): {"text": "hello", "delivery": "steer"},
    ("get", "/api/approvals/{approval_id}"): None,
    ("post", "/api/approvals/{approval_id}/resolve"): REPLY,
    ("post", "/api/approvals/{approval_id}/snooze"): {},
    ("post", "/api/approvals/{approval_id}/preview"): {"edited_arguments": {}},
    ("get", "/api/sessions/{session_id}"): None,
    ("patch", "/api/sessions/{session_id}"): {"title": "mine now"},
    ("delete", "/api/sessions/{session_id}"): None,
    ("post", "/api/sessions/{session_id}/fork"): {"task_id": "{task_id}", "sequence": 1},
    ("post", "/api/sessions/{session_id}/handover"): {"username": "charlie"},
    ("patch", "/api/workspaces/{workspace_id}"): {"mcp_servers": []},
    ("get", "/api/workspaces/{workspace_id}/members"): None,
    ("get", "/api/workspaces/{workspace_id}/files"): "path=.",
    ("get", "/api/workspaces/{workspace_id}/memory"): None,
    ("get", "/api/workspaces/{workspace_id}/skills"): None,
    ("get", "/api/workspaces/{workspace_id}/files/content"): "path=a.md",
    ("put", "/api/workspaces/{workspace_id}/files/content"): "path=b.md",
    ("delete", "/api/workspaces/{workspace_id}/files/content"): f"path=a.md&sha256={SHA256_OF_A}",
    ("put", "/api/workspaces/{workspace_id}/members/{username}"): {"role": "approver"},
    ("delete", "/api/workspaces/{workspace_id}/members/{username}"): None,
    ("get", "/api/sessions/{session_id}/events"): None,
    ("get", "/api/sessions/{session_id}/policy"): None,
    ("get", "/api/sessions/{session_id}/export"): None,
    ("get", "/api/sessions/{session_id}/stream"): None,
    ("get", "/api/stream/{session_id}"): None,
    ("delete", "/api/tokens/{token_id}"): None,
    ("delete", "/api/rules/{rule_id}"): None,
    ("post", "/api/webhooks/{webhook_id}"): {"text": "hello"},
}
"""Every route with an id in its path, with a valid body."""

BY_SECRET = "/api/webhooks/"
"""Who proves no secret is nobody there, whoever they are: there is nothing to sign in for."""

FIELDS: dict[tuple[str, str, str], Any] = {
    ("post", "/api/tasks", "session_id"): {"goal": "x", "session_id": "{session_id}"},
    ("post", "/api/tasks", "workspace_id"): {"goal": "x", "workspace_id": "{workspace_id}"},
    ("post", "/api/tasks", "follow_up_of"): {"goal": "x", "follow_up_of": "{task_id}"},
    ("get", "/api/tasks", "session_id"): "session_id={session_id}",
    ("get", "/api/approvals", "task_id"): "task_id={task_id}",
    ("post", "/api/approvals/resolve", "approval_id"): {
        "results": [{"approval_id": "{approval_id}", **REPLY}]
    },
    ("get", "/api/approvals", "session_id"): "session_id={session_id}",
    ("get", "/api/approvals", "workspace_id"): "workspace_id={workspace_id}",
    ("get", "/api/rules", "session_id"): "session_id={session_id}",
    ("get", "/api/sessions", "workspace_id"): "workspace_id={workspace_id}",
    ("post", "/api/sessions", "workspace_id"): {"workspace_id": "{workspace_id}"},
    ("post", "/api/sessions/{own_session}/fork", "task_id"): {
        "task_id": "{task_id}",
        "sequence": 1,
    },
    ("post", "/agui", "workspace_id"): {
        **run_input("thread", "run", "x"),
        "forwardedProps": {"pilothouse": {"workspace_id": "{workspace_id}"}},
    },
    ("post", "/api/chat", "session_id"): {"session_id": "{session_id}", "text": "x"},
    ("post", "/api/confirm", "session_id"): {
        "session_id": "{session_id}",
        "results": [{"tool_call_id": "call-1", "approved": True}],
    },
}
"""Every id in a body or query, in a request that is valid otherwise."""

PAGES = (
    "/c/{session_id}",
    "/c/{session_id}/export.html",
    "/c/{session_id}/export.md",
    "/artifacts/{artifact_id}/view",
    "/workspaces/{workspace_id}",
    "/workspaces/{workspace_id}/files",
)
"""Pages with an id: the same 404 page for all; who is not signed in is sent to do so."""
NOT_OURS = ("/admin/", "/decide/{signed}", "/sign-in/{token}", "/api/{path}", "/agui/{path}")
"""Django's admin judges by itself; a link of a mail or for signing in is a secret, not an id; the last two serve nothing."""
NO_OBJECTS = {"tool_call_id", "model_profile_id"}
"""The first is named within an object whose own id is checked; models are there for everybody."""


@cache
def schema() -> dict[str, Any]:
    return dict(api.get_openapi_schema())


def documented() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in schema()["paths"].items():
        for method, operation in operations.items():
            yield method, path, operation


def routes_with_an_id() -> set[tuple[str, str]]:
    operations = {(method, path) for method, path, _ in documented() if "{" in path}
    known = {path for _, path in operations}
    others = {("get", path) for path in url_conf() if "{" in path and path not in known}
    others -= {("get", path) for path in PAGES}
    return operations | {route for route in others if not route[1].startswith(NOT_OURS)}


def test_every_route_with_an_id_has_a_sample() -> None:
    missing, gone = routes_with_an_id() - ROUTES.keys(), ROUTES.keys() - routes_with_an_id()

    assert not missing, "Add the new routes to ROUTES, so that they are tried as a stranger."
    assert not gone


def ids_in(part: Any, components: dict[str, Any]) -> Iterator[str]:
    """Names of properties that are ids, at any depth."""
    if isinstance(part, dict):
        if "$ref" in part:
            yield from ids_in(components[part["$ref"].rpartition("/")[2]], components)
        for name in part.get("properties", {}):
            if name.endswith("_id") or name in {"follow_up_of", "id"}:
                yield name
        for inner in part.values():
            yield from ids_in(inner, components)
    elif isinstance(part, list):
        for inner in part:
            yield from ids_in(inner, components)


def test_every_id_in_a_body_or_query_has_a_sample() -> None:
    components = schema()["components"]["schemas"]
    known = {(m, p.replace("{own_session}", "{session_id}"), f) for m, p, f in FIELDS}
    missing = set()
    for method, path, operation in documented():
        queries = [part for part in operation.get("parameters", []) if part["in"] == "query"]
        named = {part["name"] for part in queries if part["name"].endswith("_id")}
        named |= set(ids_in(operation.get("requestBody"), components))
        missing |= {(method, path, name) for name in named - NO_OBJECTS} - known

    assert not missing, "Add the new fields to FIELDS, so that they are tried with a foreign id."


# ── trying ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def theirs(house: House) -> dict[str, str]:
    """Ids of Alice's objects."""
    bearer(house.alice)
    return {
        "task_id": str(house.task.id),
        "session_id": str(house.session.id),
        "workspace_id": str(house.workspace.id),
        "approval_id": str(house.approval.id),
        "artifact_id": str(made_file(house).pk),
        "token_id": str(ApiToken.objects.get(user=house.alice).pk),
        "sequence": "1",
        "username": "bob",
        "rule_id": str(made_rule(house).pk),
        "webhook_id": str(made_webhook(house).pk),
    }


def made_rule(house: House) -> PolicyRule:
    return PolicyRule.objects.create(
        scope="session", session=house.session, decision="allow", made_by=house.alice
    )


def made_webhook(house: House) -> Webhook:
    webhook = Webhook.objects.create(
        owner=house.alice, workspace=house.workspace, name="w", goal="g"
    )
    webhooks.renew_secret(webhook, "alice")
    return webhook


def made_file(house: House) -> Artifact:
    (Path(house.workspace.root) / "a.md").write_bytes(b"a")
    return Artifact.objects.create(
        task=house.task,
        path="a.md",
        size=1,
        sha256=hashlib.sha256(b"a").hexdigest(),
        media_type="text/markdown",
    )


def unknown() -> dict[str, str]:
    names = ["task_id", "session_id", "workspace_id", "approval_id", "artifact_id", "rule_id"]
    names += ["webhook_id"]
    return {name: str(uuid4()) for name in names} | {
        "token_id": "999999",
        "sequence": "1",
        "username": "bob",
    }


def fill(value: Any, ids: dict[str, str]) -> Any:
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda found: ids[found[1]], value)
    if isinstance(value, dict):
        return {name: fill(part, ids) for name, part in value.items()}
    if isinstance(value, list):
        return [fill(part, ids) for part in value]
    return value


def ask(
    client: Client, method: str, path: str, body: Any, ids: dict[str, str]
) -> tuple[int, bytes]:
    target = fill(path, ids)
    if isinstance(body, str):
        target += "?" + fill(body, ids)
    data = fill(body, ids) if isinstance(body, dict) else None
    kind = {"content_type": "application/json"} if method != "get" else {}
    response = getattr(client, method)(target, data, **kind)
    return response.status_code, response.content


def strangers(house: House) -> dict[str, Client]:
    staff = make_user("staff", is_staff=True)
    cookie = Client()
    cookie.force_login(house.charlie)
    return {
        "charlie": Client(headers=bearer(house.charlie)),
        "charlie's browser": cookie,
        "staff": Client(headers=bearer(staff)),
    }


def everything() -> list[Any]:
    tables = (Session, Task, Approval)
    return [list(table._default_manager.order_by("pk").values()) for table in tables]


def test_strangers_cannot_tell_a_foreign_id_from_an_unknown_one(
    house: House, theirs: dict[str, str]
) -> None:
    before = everything()
    for name, client in strangers(house).items():
        for method, path in ROUTES:
            body = ROUTES[method, path]
            found = ask(client, method, path, body, theirs)
            assert found == ask(client, method, path, body, unknown()), (name, method, path)
            assert found[0] == 404, (name, method, path, found)
    assert everything() == before


def test_a_foreign_page_is_the_page_of_what_does_not_exist(
    house: House, theirs: dict[str, str]
) -> None:
    cookie = strangers(house)["charlie's browser"]
    for path in PAGES:
        found = ask(cookie, "get", path, None, theirs)
        assert found == ask(cookie, "get", path, None, unknown()), path
        assert found[0] == 404
        assert ask(Client(), "get", path, None, theirs)[0] == 302
    owner = Client()
    owner.force_login(house.alice)
    assert [ask(owner, "get", path, None, theirs)[0] for path in PAGES] == [200] * len(PAGES)


def test_nobody_gets_nothing(house: House, theirs: dict[str, str]) -> None:
    before = everything()
    for method, path in ROUTES:
        body = ROUTES[method, path]
        found = ask(Client(), method, path, body, theirs)
        assert found == ask(Client(), method, path, body, unknown()), (method, path)
        assert found[0] == (404 if path.startswith(BY_SECRET) else 401), (method, path, found)
    assert everything() == before


def test_foreign_ids_in_bodies_and_queries_are_unknown(
    house: House, theirs: dict[str, str]
) -> None:
    own = {"own_session": str(make_session(make_workspace(house.charlie)).id)}
    before = everything()
    client = Client(headers=bearer(house.charlie))
    for (method, path, field), body in FIELDS.items():
        found = ask(client, method, path, body, theirs | own)
        assert found == ask(client, method, path, body, unknown() | own), (method, path, field)
        assert found[0] == 404, (method, path, field, found)
    assert everything() == before


NO_ROW = ("/stream", "/stream/{session_id}", "{sequence}", "/undo")
"""How paths end that stay open, or whose event the sample lacks; others try them as the owner."""


def test_samples_are_requests_that_the_owner_may_make(house: House, theirs: dict[str, str]) -> None:
    """Else a wrong path in a sample would pass for a refusal."""
    client = Client(headers=bearer(house.alice))
    for method, path in ROUTES:
        if method == "get" and not path.endswith(NO_ROW):
            assert ask(client, method, path, ROUTES[method, path], theirs)[0] == 200, path
