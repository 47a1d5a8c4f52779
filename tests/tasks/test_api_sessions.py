"""Sessions, workspaces and tokens over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tasks.models import ApiToken, Session, Task
from tests.support.api import code
from tests.support.people import House, bearer
from tests.support.rows import make_session, make_user, make_workspace

pytestmark = pytest.mark.django_db


def send(client: Client, method: str, path: str, body: Any = None) -> Any:
    return getattr(client, method)(path, body or {}, content_type="application/json")


# ── sessions ──────────────────────────────────────────────────────────────────────────────────


def test_session_begins_in_the_first_workspace(alice: Client, house: House) -> None:
    make_workspace(house.alice)

    response = send(alice, "post", "/api/sessions", {"title": " Quotes "})

    assert response.status_code == 201
    body = response.json()
    assert (body["title"], body["workspace_id"]) == ("Quotes", str(house.workspace.id))
    assert (body["owner"], body["archived"], body["last_position"]) == ("alice", False, 0)
    assert alice.get(f"/api/sessions/{body['id']}").json() == body


def test_viewer_cannot_begin_a_session_there(house: House) -> None:
    vera = Client(headers=bearer(house.vera))

    response = send(vera, "post", "/api/sessions", {"workspace_id": str(house.workspace.id)})

    assert code(response) == (404, "not_found")


def test_sessions_are_listed_last_active_first_without_the_archive(
    alice: Client, house: House
) -> None:
    now = timezone.now()
    old = make_session(house.workspace, updated_at=now - timedelta(days=1))
    new = make_session(house.workspace, updated_at=now + timedelta(days=1))
    away = make_session(house.workspace, archived=True)

    def ids(query: str = "") -> list[str]:
        return [item["id"] for item in alice.get(f"/api/sessions{query}").json()["items"]]

    assert ids() == [str(row.id) for row in (new, house.session, old)]
    assert ids("?archived=true") == [str(away.id)]


def test_session_is_renamed_and_archived(alice: Client, house: House) -> None:
    path = f"/api/sessions/{house.session.id}"

    assert send(alice, "patch", path, {"title": "New"}).json()["title"] == "New"
    assert send(alice, "patch", path, {"archived": True}).json()["archived"] is True
    body = send(alice, "patch", path).json()
    assert (body["title"], body["archived"]) == ("New", True)


def test_busy_session_is_not_deleted(alice: Client, house: House) -> None:
    path = f"/api/sessions/{house.session.id}"

    assert code(alice.delete(path)) == (409, "session_busy")
    Task.objects.update(status=Task.Status.CANCELLED)
    assert alice.delete(path).status_code == 204


def test_deleted_session_is_gone_with_its_tasks_but_its_rows_stay(
    alice: Client, house: House
) -> None:
    Task.objects.update(status=Task.Status.COMPLETED)
    alice.delete(f"/api/sessions/{house.session.id}")

    for path in (
        f"sessions/{house.session.id}",
        f"tasks/{house.task.id}",
        f"approvals/{house.approval.id}",
    ):
        assert alice.get(f"/api/{path}").status_code == 404
    assert alice.delete(f"/api/sessions/{house.session.id}").status_code == 404
    assert Session.objects.get().hidden
    assert Task.objects.exists()


def test_running_names_what_is_not_finished(alice: Client, house: House) -> None:
    assert alice.get("/api/sessions/running").json()["items"] == [
        {
            "session_id": str(house.session.id),
            "task_id": str(house.task.id),
            "status": "waiting_approval",
        }
    ]
    Task.objects.update(status=Task.Status.FAILED)
    assert alice.get("/api/sessions/running").json() == {"items": [], "next": None}


def test_running_of_others_is_not_named(house: House) -> None:
    charlie = Client(headers=bearer(house.charlie))

    assert charlie.get("/api/sessions/running").json()["items"] == []


@pytest.mark.django_db(transaction=True)
def test_session_events_are_read_in_both_directions(alice: Client, house: House) -> None:
    Task.objects.update(status=Task.Status.COMPLETED)
    for number in range(5):
        body = {"goal": str(number), "session_id": str(house.session.id), "when_busy": "queue"}
        send(alice, "post", "/api/tasks", body)
    path = f"/api/sessions/{house.session.id}/events"

    def positions(query: str) -> tuple[list[int], int | None]:
        body = alice.get(f"{path}?{query}").json()
        return [item["position"] for item in body["items"]], body["next"]

    assert positions("") == ([1, 2, 3, 4, 5], None)
    assert positions("after=1&limit=2") == ([2, 3], 3)
    assert positions("after=3&limit=2") == ([4, 5], None)
    assert positions("before=6&limit=2") == ([4, 5], 4)
    assert positions("before=4&limit=3") == ([1, 2, 3], None)
    assert positions("before=1") == ([], None)


@pytest.mark.django_db(transaction=True)
def test_fork_goes_on_from_an_event(alice: Client, house: House) -> None:
    task = send(alice, "post", "/api/tasks", {"goal": "x"}).json()
    path = f"/api/sessions/{task['session_id']}/fork"

    response = send(alice, "post", path, {"task_id": task["id"], "sequence": 1})

    assert response.status_code == 201
    assert response.json()["forked_from"] == {"task_id": task["id"], "sequence": 1}
    assert code(send(alice, "post", path, {"task_id": task["id"], "sequence": 2})) == (
        400,
        "invalid",
    )
    elsewhere = {"task_id": str(house.task.id), "sequence": 1}
    assert code(send(alice, "post", path, elsewhere)) == (404, "not_found")


# ── workspaces ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "role"),
    [("alice", "owner"), ("bob", "member"), ("vera", "viewer"), ("dora", "approver")],
)
def test_workspaces_are_listed_with_ones_role(house: House, name: str, role: str) -> None:
    client = Client(headers=bearer(getattr(house, name)))

    assert client.get("/api/workspaces").json()["items"] == [
        {"id": str(house.workspace.id), "name": "desk", "role": role, "mcp_servers": []}
    ]


def test_workspaces_of_others_are_not_listed(house: House) -> None:
    assert Client(headers=bearer(house.charlie)).get("/api/workspaces").json()["items"] == []


# ── tokens ────────────────────────────────────────────────────────────────────────────────────


def test_token_is_shown_once_and_works(alice: Client) -> None:
    response = send(
        alice, "post", "/api/tokens", {"name": "ci", "scopes": ["read"], "expires_in_days": 7}
    )

    assert response.status_code == 201
    made = response.json()
    client = Client(headers={"Authorization": f"Bearer {made.pop('token')}"})
    assert client.get("/api/tasks").status_code == 200
    assert (made["name"], made["scopes"]) == ("ci", ["read"])
    listed = client.get("/api/tokens").json()["items"]
    assert [item["name"] for item in listed] == ["ci", "test"]
    assert not any("token" in item or "digest" in item for item in listed)


def test_revoked_token_stops_working_and_stays_listed(alice: Client) -> None:
    made = send(alice, "post", "/api/tokens").json()
    client = Client(headers={"Authorization": f"Bearer {made['token']}"})

    assert alice.delete(f"/api/tokens/{made['id']}").status_code == 204

    assert client.get("/api/tasks").status_code == 401
    assert alice.delete(f"/api/tokens/{made['id']}").status_code == 404
    assert alice.get("/api/tokens").json()["items"][0]["revoked_at"]


def test_token_cannot_make_one_with_more_scopes(house: House) -> None:
    client = Client(headers=bearer(house.alice, scopes=["read", "write"]))

    assert code(send(client, "post", "/api/tokens", {"scopes": ["approve"]})) == (403, "scope")
    assert send(client, "post", "/api/tokens").json()["scopes"] == ["read", "write"]


@pytest.mark.parametrize("body", [{}, {"expires_in_days": 3}])
def test_token_cannot_make_one_that_lives_longer(house: House, body: dict[str, int]) -> None:
    client = Client(headers=bearer(house.alice, expires=timezone.now() + timedelta(days=2)))

    assert code(send(client, "post", "/api/tokens", body)) == (403, "scope")
    assert send(client, "post", "/api/tokens", {"expires_in_days": 1}).status_code == 201


@pytest.mark.parametrize("token_id", ["0", "x", "9" * 40, "-1"])
def test_token_that_does_not_exist_is_404(alice: Client, token_id: str) -> None:
    assert code(alice.delete(f"/api/tokens/{token_id}")) == (404, "not_found")


def test_tokens_of_others_are_out_of_reach(alice: Client) -> None:
    bearer(make_user())
    other = ApiToken.objects.order_by("-pk")[0]

    assert code(alice.delete(f"/api/tokens/{other.pk}")) == (404, "not_found")
    assert len(alice.get("/api/tokens").json()["items"]) == 1
