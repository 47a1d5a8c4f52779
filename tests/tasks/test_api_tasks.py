"""Tasks over HTTP."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from agent.entries import Spent
from tasks import endings
from tasks.api.schemas.tasks import UNUSED
from tasks.conf import conf
from tasks.models import Session, Task
from tests.support.api import code, post
from tests.support.people import House, bearer, make_house
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = pytest.mark.django_db(transaction=True)  # the writer has a connection of its own


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    Task.objects.update(status=Task.Status.COMPLETED)
    return house


def test_created_task_waits_and_says_where_to_follow_it(alice: Client, house: House) -> None:
    response = post(alice, "/api/tasks", {"goal": "Compare the quotes"})

    assert response.status_code == 202
    body = response.json()
    assert set(body) == {"id", "session_id", "status", "sequence", "position", "stream_url"}
    assert (body["status"], body["sequence"]) == ("queued", 1)
    assert body["stream_url"] == f"/api/tasks/{body['id']}/stream"
    task = Task.objects.get(pk=body["id"])
    assert (task.goal, task.trigger, task.created_by) == ("Compare the quotes", "api", house.alice)
    assert task.session.workspace == house.workspace
    assert str(task.session_id) == body["session_id"]


def test_task_in_a_session_follows_its_last_task(alice: Client, house: House) -> None:
    body = post(
        alice, "/api/tasks", {"goal": "And now?", "session_id": str(house.session.id)}
    ).json()

    assert body["session_id"] == str(house.session.id)
    assert Task.objects.get(pk=body["id"]).follow_up_of == house.task


def test_follow_up_alone_names_the_session(alice: Client, house: House) -> None:
    body = post(
        alice, "/api/tasks", {"goal": "And now?", "follow_up_of": str(house.task.id)}
    ).json()

    assert body["session_id"] == str(house.session.id)


def test_ids_that_do_not_belong_together_are_400(alice: Client, house: House) -> None:
    other = make_workspace(house.alice)
    elsewhere = make_session(other)

    for body in (
        {"session_id": str(elsewhere.id), "follow_up_of": str(house.task.id)},
        {"session_id": str(elsewhere.id), "workspace_id": str(house.workspace.id)},
        {"workspace_id": str(other.id), "follow_up_of": str(house.task.id)},
    ):
        response = post(alice, "/api/tasks", {"goal": "x", **body})
        assert code(response) == (400, "invalid")
        assert set(response.json()["error"]["details"]) <= {
            "session_id",
            "workspace_id",
            "follow_up_of",
        }


def test_member_works_in_the_workspace_that_they_name(house: House) -> None:
    bob = Client(headers=bearer(house.bob))

    body = post(bob, "/api/tasks", {"goal": "x", "workspace_id": str(house.workspace.id)}).json()

    assert Session.objects.get(pk=body["session_id"]).owner == house.bob


def test_without_a_workspace_there_is_nowhere_to_work() -> None:
    client = Client(headers=bearer(make_user()))

    assert code(post(client, "/api/tasks", {"goal": "x"})) == (400, "no_workspace")
    assert code(post(client, "/api/sessions")) == (400, "no_workspace")


@pytest.mark.parametrize("goal", ["", " \n\t"])
def test_empty_goal_is_400(alice: Client, goal: str) -> None:
    response = post(alice, "/api/tasks", {"goal": goal})

    assert code(response) == (400, "invalid")
    assert set(response.json()["error"]["details"]) == {"goal"}


@pytest.mark.parametrize("length", [64 * 1024 + 1, 1_000_000])
def test_huge_goal_is_413(alice: Client, length: int) -> None:
    assert code(
        post(alice, "/api/tasks", {"goal": "界" * length if length < 100_000 else "x" * length})
    ) == (413, "too_large")
    assert not Task.objects.filter(trigger="api", status="queued").exists()


def test_greatest_goal_is_taken_whole(alice: Client) -> None:
    goal = "界" * (64 * 1024)
    task_id = post(alice, "/api/tasks", {"goal": goal}).json()["id"]

    assert alice.get(f"/api/tasks/{task_id}").json()["goal"] == goal


def test_looser_mode_is_400(alice: Client, settings: Any) -> None:
    settings.PILOTHOUSE = replace(conf(), mode="deny")

    assert code(post(alice, "/api/tasks", {"goal": "x", "mode": "ask"})) == (400, "mode_loosened")
    assert post(alice, "/api/tasks", {"goal": "x", "mode": "deny"}).status_code == 202


def test_busy_session_is_409_unless_it_may_queue(alice: Client, house: House) -> None:
    body = {"goal": "x", "session_id": str(house.session.id)}
    post(alice, "/api/tasks", body)

    assert code(post(alice, "/api/tasks", body)) == (409, "session_busy")
    assert post(alice, "/api/tasks", {**body, "when_busy": "queue"}).status_code == 202


def test_full_queue_is_429(alice: Client, settings: Any) -> None:
    settings.PILOTHOUSE = replace(conf(), max_queued_per_user=1)
    post(alice, "/api/tasks", {"goal": "x"})

    response = post(alice, "/api/tasks", {"goal": "y"})

    assert code(response) == (429, "queue_full")
    assert int(response["Retry-After"]) > 0


# ── Idempotency-Key ───────────────────────────────────────────────────────────────────────────


def test_same_key_and_body_get_the_same_answer(alice: Client) -> None:
    key = {"Idempotency-Key": "once"}
    first = post(alice, "/api/tasks", {"goal": "x", "mode": "deny"}, **key)
    again = post(alice, "/api/tasks", {"mode": "deny", "goal": "x"}, **key)

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.content == again.content
    assert Task.objects.filter(goal="x").count() == 1


def test_same_key_with_another_body_is_409(alice: Client) -> None:
    key = {"Idempotency-Key": "once"}
    post(alice, "/api/tasks", {"goal": "x"}, **key)

    assert code(post(alice, "/api/tasks", {"goal": "y"}, **key)) == (409, "idempotency_conflict")


def test_keys_of_two_people_do_not_meet(alice: Client, house: House) -> None:
    make_workspace(house.charlie)
    key = {"Idempotency-Key": "once"}
    ours = post(alice, "/api/tasks", {"goal": "x"}, **key).json()
    theirs = post(Client(headers=bearer(house.charlie)), "/api/tasks", {"goal": "x"}, **key).json()

    assert ours["id"] != theirs["id"]


def test_a_key_that_no_database_stores_is_cleaned(alice: Client) -> None:
    post(alice, "/api/tasks", {"goal": "x"}, **{"Idempotency-Key": "one\0key"})

    assert Task.objects.get(goal="x").idempotency_key == "one\ufffdkey"


def test_endless_key_is_400(alice: Client) -> None:
    assert (
        code(post(alice, "/api/tasks", {"goal": "x"}, **{"Idempotency-Key": "k" * 201}))[0] == 400
    )


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def test_detail_has_what_the_list_has(alice: Client, house: House) -> None:
    Task.objects.update(lease_worker="host:17", cost="0.250000", usage={"input_tokens": 7})

    body = alice.get(f"/api/tasks/{house.task.id}").json()

    assert alice.get("/api/tasks").json() == {"items": [body], "next": None}
    assert (body["status"], body["worker"], body["cost"]) == ("completed", "host:17", 0.25)
    assert body["usage"] == UNUSED | {"input_tokens": 7}
    assert body["created_at"].endswith("Z")


def test_usage_has_every_counter_before_a_model_answered(alice: Client) -> None:
    created = post(alice, "/api/tasks", {"goal": "x"}).json()

    usage = alice.get(f"/api/tasks/{created['id']}").json()["usage"]

    assert usage == endings.usage_fields(Spent())["usage"]


def test_list_is_filtered(alice: Client, house: House) -> None:
    other = make_session(house.workspace)
    running = make_task(other, status=Task.Status.RUNNING)

    def ids(query: str) -> list[str]:
        return [item["id"] for item in alice.get(f"/api/tasks?{query}").json()["items"]]

    assert ids("status=running") == [str(running.id)]
    assert ids(f"session_id={house.session.id}") == [str(house.task.id)]
    assert ids("status=failed") == []


def test_events_come_whole_and_in_pages(alice: Client) -> None:
    task_id = post(alice, "/api/tasks", {"goal": "x"}).json()["id"]
    for number in range(4):
        post(
            alice, f"/api/tasks/{task_id}/messages", {"text": f"hint {number}", "delivery": "steer"}
        )

    first = alice.get(f"/api/tasks/{task_id}/events?limit=3").json()
    second = alice.get(f"/api/tasks/{task_id}/events?limit=3&after={first['next']}").json()

    assert [event["sequence"] for event in first["items"] + second["items"]] == [1, 2, 3, 4, 5]
    assert (first["next"], second["next"]) == (3, None)
    assert first["items"][1]["payload"]["text"] == "hint 0"
    assert alice.get(f"/api/tasks/{task_id}/events?after=99").json() == {"items": [], "next": None}


def test_one_event(alice: Client) -> None:
    task_id = post(alice, "/api/tasks", {"goal": "x"}).json()["id"]

    body = alice.get(f"/api/tasks/{task_id}/events/1").json()

    assert (body["type"], body["task_id"], body["payload"]["goal"]) == (
        "task_created",
        task_id,
        "x",
    )


@pytest.mark.parametrize("sequence", ["0", "2", "-1", "x", "1.0", "¹", "9" * 40])
def test_event_that_does_not_exist_is_404(alice: Client, sequence: str) -> None:
    task_id = post(alice, "/api/tasks", {"goal": "x"}).json()["id"]

    assert code(alice.get(f"/api/tasks/{task_id}/events/{sequence}")) == (404, "not_found")


# ── cancel, retry, messages ───────────────────────────────────────────────────────────────────


def test_cancel_is_idempotent(alice: Client) -> None:
    task_id = post(alice, "/api/tasks", {"goal": "x"}).json()["id"]

    first = post(alice, f"/api/tasks/{task_id}/cancel")
    again = post(alice, f"/api/tasks/{task_id}/cancel")

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["status"] == again.json()["status"] == "cancelled"
    assert Task.objects.get(pk=task_id).last_sequence == 2


def test_cancel_needs_no_body(alice: Client, house: House) -> None:
    assert alice.post(f"/api/tasks/{house.task.id}/cancel").status_code == 202


def test_retry_makes_a_new_task(alice: Client, house: House) -> None:
    Task.objects.update(status=Task.Status.FAILED)

    response = post(alice, f"/api/tasks/{house.task.id}/retry", {"limits": {"steps": 3}})

    assert response.status_code == 202
    task = Task.objects.get(pk=response.json()["id"])
    assert (task.follow_up_of, task.goal, task.limits) == (
        house.task,
        house.task.goal,
        {"steps": 3},
    )


def test_retry_needs_no_body(alice: Client, house: House) -> None:
    Task.objects.update(status=Task.Status.FAILED)

    path = f"/api/tasks/{house.task.id}/retry"
    assert alice.post(path, b"", content_type="application/json").status_code == 202


def test_completed_task_is_not_retried(alice: Client, house: House) -> None:
    assert code(post(alice, f"/api/tasks/{house.task.id}/retry")) == (409, "not_retryable")


def test_message_is_queued_as_a_task_of_its_own(alice: Client, house: House) -> None:
    task_id = post(alice, "/api/tasks", {"goal": "x"}).json()["id"]

    said = post(alice, f"/api/tasks/{task_id}/messages", {"text": "then this", "delivery": "queue"})

    assert said.status_code == 202
    assert Task.objects.get(pk=said.json()["id"]).goal == "then this"


def test_ended_task_cannot_be_steered(alice: Client, house: House) -> None:
    response = post(
        alice, f"/api/tasks/{house.task.id}/messages", {"text": "x", "delivery": "steer"}
    )

    assert code(response) == (409, "task_ended")


@pytest.mark.parametrize("path", ["cancel", "retry", "messages"])
def test_viewer_may_read_but_not_touch(house: House, path: str) -> None:
    vera = Client(headers=bearer(house.vera))

    assert vera.get(f"/api/tasks/{house.task.id}").status_code == 200
    body = {"text": "x", "delivery": "steer"} if path == "messages" else {}
    refused = post(vera, f"/api/tasks/{house.task.id}/{path}", body)
    assert refused.content == post(vera, f"/api/tasks/{uuid4()}/{path}", body).content
    assert refused.status_code == 404
