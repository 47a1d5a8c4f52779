"""AG-UI over HTTP, with a real server: a client that leaves, comes back, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.agui import Rules, Stream, answer, run_input
from tests.support.e2e import Desk, House, Person
from tests.support.e2e_model import Call, Hold
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def opened(person: Person, body: dict[str, Any]) -> AsyncIterator[AsyncIterator[Rules]]:
    """`async for rules in received:` after every chunk."""
    timeout = httpx.Timeout(10, read=PATIENCE)
    async with person.http.stream("POST", "/agui", json=body, timeout=timeout) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield _chunks(response)


async def _chunks(response: httpx.Response) -> AsyncIterator[Rules]:
    stream = Stream()
    async for chunk in response.aiter_bytes():
        stream.feed(chunk)
        yield stream.rules


async def read(
    person: Person, body: dict[str, Any], until: Callable[[Rules], bool] | None = None
) -> Rules:
    """The whole run, or as much as is wanted; then the connection is closed."""
    rules = Rules()
    async with opened(person, body) as received:
        async for seen in received:
            rules = seen
            if until is not None and until(rules):
                return rules
    assert rules.ended
    return rules


def at(desk: Desk) -> dict[str, Any]:
    return {"forwardedProps": {"pilothouse": {"workspace_id": desk.id}}}


async def test_a_run_is_left_asked_for_again_and_answered(house: House, alice: Person) -> None:
    desk, hold = house.desk(), Hold()
    name = house.model.script(
        "agui",
        [
            "I look ",
            hold,
            "at it.",
            Call("read_file", path="a.txt"),
            Call("read_file", path="b.txt"),
        ],
        ["Now I write.", Call("write_file", path="out.md", content="# AAA BBB\n")],
        ["Done: ", "out.md"],
    )
    body = run_input("thread", "one", f"[{name}] Compare", **at(desk))

    left = await read(alice, body, lambda rules: "I look " in rules.texts.values())
    assert not left.ended
    task = left.events[0]["metadata"]["pilothouse"]["task_id"]
    again = asyncio.create_task(read(alice, body))
    hold.release()
    first = await again
    assert {"I look at it.", "Now I write."} <= set(first.texts.values())
    assert ["AAA" in each["content"] for each in first.results.values()].count(True) == 1
    (question,) = first.interrupts
    assert desk.text("out.md") is None

    goes_on = run_input("thread", "two", resume=[answer(question, approved=True)])
    second = await read(alice, goes_on)
    assert second.outcome == {"type": "success"}
    assert second.events[-1]["result"] == "Done: out.md"
    assert desk.text("out.md") == "# AAA BBB\n"
    assert (await read(alice, goes_on)).results == second.results
    assert (await read(alice, body)).interrupts == [question]
    await house.check(alice, task)
    assert house.refusals() == []


async def test_a_stop_ends_the_run_for_who_watches(house: House, alice: Person) -> None:
    asked = False
    name = house.model.script("agui-stop", ["Once upon a time ", Hold()])
    body = run_input("stopped", "one", f"[{name}] Tell", **at(house.desk()))
    async with opened(alice, body) as received:
        async for rules in received:
            if any(rules.texts.values()) and not asked:
                asked = True
                await alice.cancel(rules.events[0]["metadata"]["pilothouse"]["task_id"])
    assert rules.ended
    assert rules.outcome == {"type": "cancelled"}
    assert "Once upon a time " in rules.texts.values()
