"""A person who gets a task done whatever happens to the servers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress

import httpx

from tests.support.e2e import Follower
from tests.support.stages import LONG_SECONDS, Work


async def persist(work: Work, stack: AsyncExitStack, delay: float) -> None:
    """Somebody who wants it done, whatever happens to the server; one of five thinks better of it."""
    await asyncio.sleep(delay)
    body = {"goal": f"[{work.name}] Write a report", "workspace_id": work.desk.id}
    headers = {"Idempotency-Key": work.name}
    created = await insist(work.alice.http, "/api/tasks", body, headers)
    assert created.status_code == 202
    work.id = created.json()["id"]
    work.client = await stack.enter_async_context(work.alice.follow(work.id))
    if work.name.endswith(("1", "6")):
        await asyncio.sleep(delay % 1)
        cancelled = await insist(work.alice.http, f"/api/tasks/{work.id}/cancel", {})
        assert cancelled.status_code == 202
    answered: set[str] = set()
    while not work.client.reader.ended:
        await work.client.until(
            lambda r: r.ended or unanswered(work.client, answered), seconds=LONG_SECONDS
        )
        for question in unanswered(work.client, answered):
            path = f"/api/approvals/{question['approval_id']}/resolve"
            answer = await insist(work.alice.http, path, answer_to(question, work))
            assert answer.status_code in (202, 409)
            answered.add(question["approval_id"])


def unanswered(client: Follower, answered: set[str]) -> list[dict[str, str]]:
    asked = [e.payload for e in client.reader.stored if e.type == "approval_required"]
    return [question for question in asked if question["approval_id"] not in answered]


def answer_to(question: dict[str, str], work: Work) -> dict[str, str]:
    if question["kind"] == "call":
        return {"decision": "approve"}
    done = work.desk.text("out.txt") is not None
    return {"decision": "approve", "answer": "done" if done else "retry"}


async def insist(
    http: httpx.AsyncClient, path: str, body: object, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Until the server answers."""
    while True:
        with suppress(httpx.TransportError):
            answer = await http.post(path, json=body, headers=headers)
            if answer.status_code < 500:
                return answer
        await asyncio.sleep(0.05)


async def check_persisted(work: Work) -> None:
    log = await work.house.check(work.alice, work.id, work.client)
    made = await work.alice.get(f"/api/tasks?session_id={log[0]['payload']['session_id']}")
    assert len(made["items"]) == 1, "one key, one task"
    assert work.model.run(work.name).refusals == []
    match (await work.alice.task(work.id))["status"]:
        case "completed":
            assert work.desk.text("out.txt") == "report\n"
        case "failed":
            assert log[-1]["payload"]["error"]["code"] == "recovery_failed"
        case status:
            assert status == "cancelled"
    started = [e for e in log if e["type"] == "tool_call_started"]
    writes = [e for e in started if e["payload"]["tool_call_id"].startswith(f"{work.name}-1")]
    assert work.gate("out.txt").calls <= len(writes)
