"""The life of a run from outside: stopped, spoken to while busy, and held by its limits."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Call, Hold, Model, words
from tests.support.waiting import PATIENCE, happened

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("moment", ["word 5", "the silence"])
async def test_d01_a_cancel_stops_the_model_at_once(
    house: House, alice: Person, moment: str
) -> None:
    """The model says ten words and then nothing, with an open line."""
    name = f"D01/{moment[-1]}"
    house.model.pace["D01"] = 1
    task = await alice.ask(house.desk(), f"[{name}] Talk")
    closed = house.model.closed
    async with alice.follow(task["id"]) as client:
        await client.words(5 if moment == "word 5" else 10)
        first = await alice.cancel(task["id"])
        again = await alice.cancel(task["id"])
        await client.end("cancelled")
    await happened(lambda: house.model.closed > closed)
    assert again["status"] in ("running", "cancelled")
    late = await alice.cancel(task["id"])
    assert late["status"] == "cancelled"
    log = await house.check(alice, task["id"], client)
    (said,) = [event["payload"] for event in log if event["type"] == "assistant_message"]
    assert said["partial"] is True
    assert said["text"].startswith("w0 w1 w2 w3 w4 ")
    assert log[-1]["payload"] == {"by": "alice"}
    asked, ended = (
        datetime.fromisoformat(moment)
        for moment in (first["cancel_requested_at"], log[-1]["created_at"])
    )
    assert (ended - asked).total_seconds() < 2
    assert len(house.model.run("D01", moment[-1]).bodies) == 1
    assert await alice.task(task["id"]) == late, "nothing moves afterwards"


async def test_d07_one_loop_per_conversation(house: House, alice: Person) -> None:
    desk = house.desk()
    first = await alice.ask(desk, "[D07/queue] One")
    session = first["session_id"]
    async with alice.follow(first["id"]) as client:
        await client.words(20)
        refused = await alice.http.post(
            "/api/tasks", json={"goal": "[D07/queue] Two", "session_id": session}
        )
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "session_busy"
        queued = [
            await alice.ask(None, f"[D07/queue] {n}", session_id=session, when_busy="queue")
            for n in ("Two", "Three")
        ]
        statuses = [(await alice.task(task["id"]))["status"] for task in (first, *queued)]
        assert statuses == ["running", "queued", "queued"]
        await client.end()
    for task in queued:
        await alice.until(task["id"], "completed")
        await house.check(alice, task["id"])
    run = house.model.run("D07", "queue")
    assert run.refusals == []
    roles = [message["role"] for message in run.bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    asked = [m["content"] for m in run.bodies[-1]["messages"] if m["role"] == "user"]
    assert asked == ["[D07/queue] One", "[D07/queue] Two", "[D07/queue] Three"]


async def test_d07_a_cancel_lets_the_next_one_begin(house: House, alice: Person) -> None:
    pause = Hold()
    name = house.model.script("line", [*words(5), pause])
    first = await alice.ask(house.desk(), f"[{name}] One")
    session = first["session_id"]
    async with alice.follow(first["id"]) as client:
        await client.words(5)
        second, third = [
            await alice.ask(None, f"[D07/line] {n}", session_id=session, when_busy="queue")
            for n in ("Two", "Three")
        ]
        await alice.cancel(third["id"])
        assert (await alice.task(third["id"]))["status"] == "cancelled"
        await alice.cancel(first["id"])
        await client.end("cancelled")
    assert (await alice.until(second["id"], "completed"))["run"] == 1
    assert house.model.run("D07", "line").refusals == []
    assert len(house.model.run("D07", "line").bodies) == 1


async def test_d07_what_is_said_while_it_waits_is_heard_later(house: House, alice: Person) -> None:
    desk = house.desk()
    task = await alice.ask(desk, "[C01/steer] Write it")
    async with alice.follow(task["id"]) as client:
        approval = await client.approval()
        message = {"text": "And keep it short", "delivery": "steer"}
        await alice.post(f"/api/tasks/{task['id']}/messages", message)
        assert (await alice.task(task["id"]))["status"] == "waiting_approval"
        await alice.approve(approval)
        await client.end()
    run = house.model.run("C01", "steer")
    assert run.refusals == []
    assert [m["role"] for m in run.bodies[-1]["messages"]] == [
        *("system", "user", "assistant", "tool", "user")
    ]
    assert run.bodies[-1]["messages"][-1]["content"] == "And keep it short"
    await house.check(alice, task["id"], client)


# ── limits ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def strict_house(
    tmp_path_factory: pytest.TempPathFactory, furnished: Furnished, model: Model
) -> Iterator[House]:
    env = {"PILOTHOUSE_MAX_AGENT_STEPS": "5", "PILOTHOUSE_MAX_TASK_SECONDS": "2.5"}
    house = House(tmp_path_factory.mktemp("strict"), furnished, model, env=env)
    with house.server:
        yield house


async def test_d08_the_step_limit_is_an_end_with_a_reason(strict_house: House) -> None:
    async with strict_house.person("alice") as alice:
        task = await alice.ask(strict_house.desk(), "[D08] Read for ever")
        async with alice.follow(task["id"]) as client:
            end = await client.end("budget_exceeded")
        assert (end.payload["which"], end.payload["limit"]) == ("steps", 5)
        assert "5" in end.payload["message"]
        log = await strict_house.check(alice, task["id"], client)
        run = strict_house.model.run("D08")
        assert len(run.bodies) == 5
        results = [e["payload"]["content"] for e in log if e["type"] == "tool_call_finished"]
        assert results[0] == "AAA"
        assert results[2] != "AAA", "the third equal result says so"
        strict_house.model.script("follow-8", ["Done."])
        follow_up = await alice.ask(None, "[follow-8] And?", follow_up_of=task["id"])
        await alice.until(follow_up["id"], "completed")
        assert strict_house.model.run("follow-8").refusals == []


async def test_d08_time_counts_while_it_runs_and_not_while_it_waits(strict_house: House) -> None:
    pause = Hold()
    write = Call("write_file", path="out.txt", content="x")
    name = strict_house.model.script("time", [write], [*words(3), pause])
    clock = strict_house.model.script("clock", [*words(1), Hold()])
    async with strict_house.person("alice") as alice:
        task = await alice.ask(strict_house.desk(), f"[{name}] Write")
        async with alice.follow(task["id"]) as client:
            approval = await client.approval()
            another = await alice.ask(strict_house.desk(), f"[{clock}] Use all the time up")
            await alice.until(another["id"], "budget_exceeded")
            await alice.approve(approval)
            await client.words(3)
            end = await client.end("budget_exceeded")
        assert end.payload["which"] == "seconds"
        assert 2.5 <= end.payload["used"] < PATIENCE
        await strict_house.check(alice, task["id"], client)


async def test_d08_the_same_call_for_ever_becomes_a_question(house: House, alice: Person) -> None:
    name = house.model.script("doom", *[[Call("read_file", path="a.txt")]] * 9, ["Enough."])
    task = await alice.ask(house.desk(), f"[{name}] Read for ever")
    async with alice.follow(task["id"]) as client:
        question = await client.seen("approval_required")
        assert question.payload["kind"] == "limit"
        assert client.types.count("tool_call_finished") == 6
        answer = await alice.resolve(question.payload["approval_id"], "reject")
        assert answer.status_code == 202
        await client.until(lambda r: r.ended or client.types.count("approval_required") > 1)
        await alice.cancel(task["id"])
        await client.until(lambda r: r.ended)
    await house.check(alice, task["id"], client)
