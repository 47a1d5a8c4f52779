"""Redis and PostgreSQL restart under running work: text may pause, nothing is lost or doubled."""

from __future__ import annotations

import asyncio

from tests.support.e2e import Person
from tests.support.e2e_model import Call, Hold, words
from tests.support.scaled import ScaledHouse
from tests.support.waiting import happened

ANSWER = "".join(f"w{number} " for number in range(30))


async def test_redis_restarts_in_the_middle_of_an_answer(house: ScaledHouse, alice: Person) -> None:
    """While it is away events still arrive; when it is back, so does the text."""
    redis = house.services.redis
    away, back = Hold(), Hold()
    name = house.model.script("redis", [*words(10), away, *words(20)[10:], back, *words(30)[20:]])
    other = house.model.script("meanwhile", [Call("read_file", path="a.txt")], ["Fine."])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        await client.words(10)
        await asyncio.to_thread(redis.stop)
        away.release()
        meanwhile = await alice.ask(house.desk(), f"[{other}] Go")
        async with alice.follow(meanwhile["id"]) as second:
            await second.end()
        await house.check(alice, meanwhile["id"], second)
        await asyncio.to_thread(redis.start)
        back.release()
        await client.end()
        await house.check(alice, task["id"], client)
    await text_flows_again(house, alice)


async def text_flows_again(house: ScaledHouse, alice: Person) -> None:
    """Somebody comes late to an answer that pauses, and sees it: every way through Redis works."""
    pause = Hold()
    name = house.model.script("healed", [*words(10), pause, *words(30)[10:]])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    await happened(pause.reached.is_set)
    for web in house.server.webs:
        async with house.person_at("alice", web.url) as late, late.follow(task["id"]) as client:
            await client.words(10)
    pause.release()
    await alice.until(task["id"], "completed")


async def test_postgresql_restarts_in_the_middle_of_runs(house: ScaledHouse, alice: Person) -> None:
    """One speaks, one waits for a person, one is created right afterwards."""
    pause = Hold()
    talks = house.model.script("postgres", [*words(10), pause, *words(30)[10:]])
    writes = house.model.script("pg-writes", [Call("write_file", path="o.txt", content="x")], ["."])
    desk = house.desk()
    speaks = await alice.ask(house.desk(), f"[{talks}] Go")
    asks = await alice.ask(desk, f"[{writes}] Go")
    async with alice.follow(speaks["id"]) as speaking, alice.follow(asks["id"]) as asking:
        approval = await asking.approval()
        await speaking.words(10)
        await asyncio.to_thread(house.services.postgres.restart)
        pause.release()
        assert (await insist_on(alice, approval))["status"] == "approved"
        await speaking.end()
        await asking.end()
        await house.check(alice, speaks["id"], speaking)
        await house.check(alice, asks["id"], asking)
    assert (await alice.task(speaks["id"]))["final_answer"] == ANSWER
    assert desk.text("o.txt") == "x"


async def insist_on(alice: Person, approval: str) -> dict[str, str]:
    """The first requests may meet connections that the restart has cut."""
    while True:
        answer = await alice.resolve(approval)
        if answer.status_code == 202:
            approved: dict[str, str] = answer.json()["approval"]
            return approved
        assert answer.status_code >= 500, answer.text
        await asyncio.sleep(0.1)
