"""What every answer of the API has in common: one error shape, bounded strict bodies, lists."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session as BrowserSession
from django.db import OperationalError, connection
from django.http import HttpRequest
from django.test import Client
from django.urls import path
from django.utils import timezone
from ninja import NinjaAPI

from tasks.api import errors, health
from tasks.errors import TooMany
from tasks.models import Task
from tasks.writer import writer
from tests.support.people import House, bearer
from tests.support.rows import make_task

pytestmark = pytest.mark.django_db


def error_of(response: Any, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/json"
    body = json.loads(response.content)
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) <= {"code", "message", "details"}
    assert error["code"] == code
    assert error["message"]
    return error


def test_nobody_is_told_how_to_be_somebody() -> None:
    response = Client().get("/api/tasks")

    error_of(response, 401, "not_authenticated")
    assert response["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "path", ["/api/", "/api/nothing", "/api/tasks/", "/api/tasks/x/y/z", "/api/%ff"]
)
@pytest.mark.parametrize("method", ["get", "post"])
def test_unknown_path_is_json_404(alice: Client, path: str, method: str) -> None:
    error_of(getattr(alice, method)(path), 404, "not_found")


def test_wrong_method_is_json_405(alice: Client) -> None:
    response = alice.delete("/api/tasks")

    error_of(response, 405, "method_not_allowed")
    assert set(response["Allow"].split(", ")) == {"GET", "POST"}


def test_cookie_without_csrf_token_may_read_but_not_write(house: House) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.alice)

    assert client.get("/api/tasks").status_code == 200
    error_of(client.post("/api/sessions", {}, content_type="application/json"), 403, "csrf")


def test_cookie_with_csrf_token_may_write(house: House) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.alice)
    client.cookies["csrftoken"] = "c" * 32

    response = client.post(
        "/api/sessions", {}, content_type="application/json", headers={"X-CSRFToken": "c" * 32}
    )

    assert response.status_code == 201


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "/api/sessions"),
        ("post", "/api/tasks"),
        ("delete", "/api/tokens/1"),
        ("post", "/api/chat"),
    ],
)
def test_token_to_read_does_not_write(house: House, method: str, path: str) -> None:
    client = Client(headers=bearer(house.alice, scopes=["read"]))

    error_of(getattr(client, method)(path), 403, "scope")


def test_token_to_write_does_not_read_or_decide(house: House) -> None:
    client = Client(headers=bearer(house.alice, scopes=["write"]))

    error_of(client.get("/api/tasks"), 403, "scope")
    error_of(client.post(f"/api/approvals/{house.approval.id}/resolve"), 403, "scope")
    error_of(client.post("/api/approvals/resolve"), 403, "scope")
    error_of(client.post("/api/confirm"), 403, "scope")


@pytest.mark.parametrize(
    "body", [b"{", b"", b"NaN", b'{"title": Infinity}', b"\xff", b"[" * 100_000]
)
def test_body_that_is_not_json_is_400(alice: Client, body: bytes) -> None:
    error_of(alice.post("/api/sessions", body, content_type="application/json"), 400, "invalid")


@pytest.mark.parametrize("body", [[], "text", 7, None])
def test_json_that_is_no_object_is_400(alice: Client, body: object) -> None:
    response = alice.post("/api/sessions", json.dumps(body), content_type="application/json")
    error_of(response, 400, "invalid")


@pytest.mark.parametrize(
    ("path", "body", "fields"),
    [
        ("/api/tasks", {}, {"goal"}),
        ("/api/tasks", {"goal": 7}, {"goal"}),
        ("/api/tasks", {"goal": "x", "colour": "red"}, {"colour"}),
        ("/api/tasks", {"goal": "x", "mode": "yolo", "when_busy": "wait"}, {"mode", "when_busy"}),
        ("/api/sessions", {"title": "x" * 201}, {"title"}),
        ("/api/tokens", {"scopes": ["admin"]}, {"scopes.0"}),
        ("/api/approvals/resolve", {"results": [{"approval_id": "x"}]}, {"results.0.decision"}),
        (
            "/api/confirm",
            {"session_id": "x", "results": [{"tool_call_id": "x", "approved": "yes"}]},
            {"results.0.approved"},
        ),
    ],
)
def test_bad_fields_are_named(alice: Client, path: str, body: Any, fields: set[str]) -> None:
    error = error_of(alice.post(path, body, content_type="application/json"), 400, "invalid")

    assert set(error["details"]) == fields


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "cursor=abc", "cursor=%00", "cursor=é", "status=odd"],
)
def test_bad_query_is_400(alice: Client, query: str) -> None:
    error = error_of(alice.get(f"/api/tasks?{query}"), 400, "invalid")

    assert set(error["details"]) == {query.partition("=")[0]}


@pytest.mark.parametrize("after", ["-1", "abc", "", "1e3", "9" * 30, "9" * 10_000])
def test_bad_event_cursor_is_400(alice: Client, house: House, after: str) -> None:
    for owner in (f"tasks/{house.task.id}", f"sessions/{house.session.id}"):
        error_of(alice.get(f"/api/{owner}/events?after={after}"), 400, "invalid")


def test_body_over_the_limit_is_413(alice: Client, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    body = json.dumps({"title": "x" * 1000})

    error_of(alice.post("/api/sessions", body, content_type="application/json"), 413, "too_large")


def test_form_instead_of_json_is_400(alice: Client) -> None:
    error_of(alice.post("/api/sessions", {"title": "x"}), 400, "invalid")


def test_text_that_no_database_stores_is_cleaned(alice: Client) -> None:
    response = alice.post(
        "/api/sessions", b'{"title": "a\\u0000b\\ud83dc"}', content_type="application/json"
    )

    assert response.json()["title"] == "a\ufffdb\ufffdc"


def test_text_that_no_database_looks_for_is_cleaned(alice: Client) -> None:
    alice.post("/api/sessions", b'{"title": "a\\u0000b"}', content_type="application/json")
    assert len(alice.get("/api/sessions?q=a%00b").json()["items"]) == 1


@pytest.mark.parametrize(("path", "status"), [("/api/tasks", 401), ("/", 302)])
def test_a_cookie_that_no_database_looks_for_is_nobodys(
    house: House, path: str, status: int
) -> None:
    client = Client()
    client.force_login(house.alice)
    if connection.vendor == "sqlite":  # which would find it
        BrowserSession.objects.update(session_key="abcdefgh\0")
    answer = Client(headers={"Cookie": 'sessionid="abcdefgh\\000"'}).get(path)
    assert answer.status_code == status


# ── lists ─────────────────────────────────────────────────────────────────────────────────────


def pages(client: Client, path: str, limit: int) -> Iterator[list[dict[str, Any]]]:
    cursor = ""
    while cursor is not None:
        body = client.get(
            f"{path}?limit={limit}&cursor={cursor}" if cursor else f"{path}?limit={limit}"
        ).json()
        assert set(body) == {"items", "next"}
        yield body["items"]
        cursor = body["next"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 1000])
def test_pages_hold_every_item_once_even_at_equal_times(
    alice: Client, house: House, limit: int
) -> None:
    now = timezone.now()
    for number in range(6):
        make_task(house.session, created_at=now + timedelta(seconds=number // 3))

    ids = [item["id"] for page in pages(alice, "/api/tasks", limit) for item in page]

    expected = Task.objects.order_by("-created_at", "-pk").values_list("pk", flat=True)
    assert ids == [str(pk) for pk in expected]


def test_items_that_come_meanwhile_shift_nothing(alice: Client, house: House) -> None:
    for _ in range(3):
        make_task(house.session)
    walk = pages(alice, "/api/tasks", 2)
    seen = [item["id"] for item in next(walk)]
    make_task(house.session)
    seen += [item["id"] for page in walk for item in page]

    assert len(seen) == len(set(seen)) == 4


# ── what goes wrong on our side ───────────────────────────────────────────────────────────────

failing = NinjaAPI(urls_namespace="failing")
errors.install(failing)


@failing.get("/bug")
async def bug(request: HttpRequest) -> None:
    raise RuntimeError("the secret of the server")


@failing.get("/locked")
async def locked(request: HttpRequest) -> None:
    raise OperationalError("database is locked")


@failing.get("/full")
async def full(request: HttpRequest) -> None:
    raise TooMany("queue_full", "Enough for now.", retry_after=7)


urlpatterns = [path("api/", failing.urls)]


@pytest.fixture
def failing_client(settings: Any) -> Client:
    settings.ROOT_URLCONF = sys.modules[__name__]
    return Client()


def test_bug_is_logged_and_tells_nothing(
    failing_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    response = failing_client.get("/api/bug")

    error_of(response, 500, "internal")
    assert b"secret" not in response.content
    (record,) = (record for record in caplog.records if record.name == errors.__name__)
    assert (record.levelname, record.exc_info and record.exc_info[0]) == ("ERROR", RuntimeError)


def test_failing_database_is_503(failing_client: Client, caplog: pytest.LogCaptureFixture) -> None:
    response = failing_client.get("/api/locked")

    error_of(response, 503, "unavailable")
    assert response["Retry-After"] == "1"
    assert "ERROR" in {record.levelname for record in caplog.records}


def test_full_queue_says_when_to_come_back(failing_client: Client) -> None:
    response = failing_client.get("/api/full")

    error_of(response, 429, "queue_full")
    assert response["Retry-After"] == "7"


# ── documentation and probes ──────────────────────────────────────────────────────────────────


def test_openapi_names_every_operation_with_its_refusals() -> None:
    schema = Client().get("/api/openapi.json").json()

    assert {"/api/tasks", "/api/tasks/{task_id}", "/api/approvals/{approval_id}/resolve"} <= set(
        schema["paths"]
    )
    for path_, operations in schema["paths"].items():
        for method, operation in operations.items():
            if path_.startswith("/api/webhooks/"):  # a secret of its own, in three ways
                assert {"400", "404", "413", "429"} <= set(operation["responses"])
                assert "security" not in operation
                continue
            assert {"400", "401", "403"} <= set(operation["responses"]), (method, path_)
            assert operation["security"] == [{"Identity": []}], (method, path_)


def test_docs_page_loads_nothing_from_elsewhere() -> None:
    response = Client().get("/api/docs")

    assert response.status_code == 200
    assert b"://" not in response.content.replace(b"http://www.w3.org", b"")
    assert "csrftoken" in response.cookies


@pytest.mark.parametrize("method", ["get", "head"])
def test_healthz_needs_nobody(method: str) -> None:
    assert getattr(Client(), method)("/healthz").status_code == 200


@pytest.mark.parametrize("path_", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["put", "post", "patch", "delete", "options"])
def test_a_probe_is_only_read(path_: str, method: str) -> None:
    response = getattr(Client(enforce_csrf_checks=True), method)(path_)

    error_of(response, 405, "method_not_allowed")
    assert response["Allow"] == "GET, HEAD"


@pytest.mark.django_db(transaction=True)
def test_readyz_tries_database_and_writer() -> None:
    assert Client().get("/readyz").json() == {
        "status": "ok",
        "checks": {"database": "ok", "writer": "ok"},
    }
    assert not BrowserSession.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_readyz_is_503_while_the_writer_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PATIENCE_SECONDS", 0.05)
    gate = threading.Event()
    blocked = threading.Thread(target=writer.run_sync, args=(gate.wait,))
    blocked.start()
    try:
        error = error_of(Client().get("/readyz"), 503, "not_ready")
    finally:
        gate.set()
        blocked.join()

    assert error["details"] == {"database": "ok", "writer": "slow"}
