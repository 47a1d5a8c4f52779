"""Ask, watch, approve, result: over HTTP, as a client meets it, with its line cut at every stage."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.daphne import uvicorn_command
from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Call, Hold, Model, words

pytestmark = pytest.mark.e2e

ANSWER = "".join(f"w{number} " for number in range(20))


def report(model: Model, name: str, pause: Hold | None = None) -> str:
    """Reads, writes after a yes, and says so at some length."""
    pauses = [pause] if pause else []
    return model.script(
        name,
        ["Let me look. ", Call("read_file", path="a.txt")],
        [Call("write_file", path="out.txt", content="report\n")],
        [*words(10), *pauses, *words(20)[10:]],
    )


async def ask_watch_approve(house: House, alice: Person, name: str) -> None:
    desk = house.desk()
    task = await alice.ask(desk, f"[{report(house.model, name)}] Write a report")
    assert task["status"] == "queued"
    async with alice.follow(task["id"]) as client:
        approval = await client.approval()
        assert desk.text("out.txt") is None
        (card,) = await alice.pending(task["id"])
        assert (card["id"], card["name"]) == (approval, "write_file")
        assert "+report" in card["diff"]
        await alice.approve(approval)
        await client.end()
    assert desk.text("out.txt") == "report\n"
    log = await house.check(alice, task["id"], client)
    assert [event["payload"] for event in log if event["type"] == "agent_completed"] == [
        {"final_answer": ANSWER}
    ]
    assert (await alice.task(task["id"]))["final_answer"] == ANSWER
    assert client.connections == 1
    assert house.model.run(name).refusals == []


async def test_ask_watch_approve_result(house: House, alice: Person) -> None:
    await ask_watch_approve(house, alice, "main")


async def test_the_same_under_uvicorn(tmp_path: Path, furnished: Furnished, model: Model) -> None:
    command = uvicorn_command("config.asgi:application")
    house = House(tmp_path, furnished, model, command=command)
    with house.server:
        async with house.person("alice") as alice:
            await ask_watch_approve(house, alice, "uvicorn")


async def test_a_client_cut_at_every_stage_misses_nothing(house: House, alice: Person) -> None:
    pause, desk = Hold(), house.desk()
    task = await alice.ask(desk, f"[{report(house.model, 'cuts', pause)}] Write a report")
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(alice.follow(task["id"]))
        joined = [client]

        async def cut() -> None:
            """Cut the first, and let one more come from the beginning."""
            stored = client.reader.ids[-1]
            client.drop()
            joined.append(await stack.enter_async_context(alice.follow(task["id"])))
            await joined[-1].until(lambda reader: stored in reader.ids)

        for stage in ("task_created", "tool_call_requested", "tool_call_finished"):
            await client.seen(stage)
            await cut()
        approval = await client.approval()
        await cut()
        await alice.approve(approval)
        client.drop()
        await client.words(10)
        await cut()
        await client.words(10)
        pause.release()
        for each in joined:
            await each.end()
    assert client.connections >= 4
    await house.check(alice, task["id"], *joined)


async def test_nobody_has_to_watch(house: House, alice: Person) -> None:
    pause, desk = Hold(), house.desk()
    task = await alice.ask(desk, f"[{report(house.model, 'alone', pause)}] Write a report")
    await alice.until(task["id"], "waiting_approval")
    (card,) = await alice.pending(task["id"])
    await alice.approve(card["id"])
    await asyncio.to_thread(pause.reached.wait, 20)
    async with alice.follow(task["id"]) as client:
        await client.words(10)
    pause.release()
    await alice.until(task["id"], "completed")
    async with alice.follow(task["id"]) as late:
        await late.end()
    await house.check(alice, task["id"], late)
