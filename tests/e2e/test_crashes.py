"""The server killed with `kill -9` at every stage of ask, stream, approve, result.

Nothing is lost and nothing comes twice, nothing is on disk before its approval, an effect whose
outcome is unknown is put to a person, and every task ends or waits.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.support.daphne import Daphne, manage
from tests.support.e2e import Furnished, House, Person
from tests.support.e2e_model import Call, Model
from tests.support.held import Gate
from tests.support.persisting import check_persisted, persist
from tests.support.stages import STAGES, Stage, Work, finished
from tests.support.waiting import PATIENCE, happened

pytestmark = pytest.mark.e2e

HELD = "tests.support.held:application"


@pytest.fixture(scope="module")
def fragile(
    tmp_path_factory: pytest.TempPathFactory, furnished: Furnished, model: Model
) -> Iterator[House]:
    """A server with gates, for these tests to kill."""
    env = {"E2E_GATES": "1"}
    house = House(tmp_path_factory.mktemp("fragile"), furnished, model, env=env, application=HELD)
    with house.server:
        yield house
        house.verify_log()
        assert "Traceback" not in house.server.log


@pytest.fixture
async def house(fragile: House) -> House:
    if fragile.server.process.poll() is not None:
        await fragile.restart()
    return fragile


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param(STAGES, id="all_at_once"),
        *(pytest.param([each], id=each.__name__, marks=pytest.mark.long) for each in STAGES),
    ],
)
async def test_kill_9_at_every_stage(house: House, alice: Person, stages: list[Stage]) -> None:
    run = f"{house.server.pid}"
    async with AsyncExitStack() as stack:
        scenes = [each(Work(house, alice, f"{each.__name__}-{run}"), stack) for each in stages]
        await asyncio.gather(*(anext(scene) for scene in scenes))
        house.server.kill9()
        await house.restart()
        await asyncio.gather(*(finished(scene) for scene in scenes))


# ── who takes over ────────────────────────────────────────────────────────────────────────────


async def test_another_host_takes_over_when_the_lease_is_over(house: House, alice: Person) -> None:
    """The container has a new name and nobody left word about the old one."""
    async with AsyncExitStack() as stack:
        work = Work(house, alice, "host")
        work.close("out.txt.before")
        await work.begin(stack)
        await work.yes()
        await work.at("out.txt.before")
        old = (await alice.task(work.id))["worker"]
        house.server.kill9()
        (house.state / "db.sqlite3.server.lock").unlink()
        work.gate("out.txt.before").open()
        house.server.env["E2E_HOSTNAME"] = "elsewhere"
        await house.restart()
        recovered = await work.client.seen("task_recovered")
        assert recovered.payload["previous_worker"] == old
        approval = await work.client.approval(2)
        assert (await work.alice.resolve(approval, "reject")).status_code == 202
        await work.client.end()
        await house.check(alice, work.id, work.client)
    assert work.desk.text("out.txt") is None
    assert work.gate("out.txt").calls == 0


async def test_a_second_server_is_refused_and_disturbs_no_run(house: House, alice: Person) -> None:
    async with AsyncExitStack() as stack:
        work = Work(house, alice, "second")
        work.asking.released.clear()
        await work.begin(stack)
        await work.client.words(10)
        second = Daphne(house.state, env=house.server.env, application=HELD)
        second.log_file = house.state / "second.log"
        second.launch()
        assert await asyncio.to_thread(second.wait, PATIENCE) == 1
        assert second.log.startswith("pilothouse: Another server already serves ")
        work.asking.release()
        await work.yes()
        await work.ends_well(runs=2)
        assert work.client.connections == 1


@pytest.mark.long  # in the normal run: between_yes_and_the_run
async def test_an_answer_given_while_no_server_runs_counts(house: House, alice: Person) -> None:
    async with AsyncExitStack() as stack:
        work = Work(house, alice, "offline")
        await work.begin(stack)
        approval = await work.client.approval()
        house.server.kill9()
        command = ("resolve_approval", approval, "approve", "--user", "alice")
        await asyncio.to_thread(manage, house.state, *command)
        assert work.desk.text("out.txt") is None
        await house.restart()
        await work.ends_well(runs=2)


# ── what the model hears afterwards ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["kill", "cancel"])
async def test_calls_that_were_cut_off_leave_a_history_that_goes_on(
    house: House, alice: Person, how: str
) -> None:
    """Case D06: a read is done, another one runs, a write waits behind them."""
    desk, goal = house.desk(), f"[D06/{how}]"
    gate = Gate(desk.folder, "b.txt.before").close()
    task = await alice.ask(desk, f"{goal} Read both and write")
    async with alice.follow(task["id"]) as client:
        await client.seen("tool_call_finished")
        await happened(gate.reached.exists)
        if how == "kill":
            house.server.kill9()
            gate.open()
            await house.restart()
            approval = await client.approval()
            assert (await alice.resolve(approval, "reject", comment="Not now")).status_code == 202
            await client.end()
        else:
            await alice.cancel(task["id"])
            await client.end("cancelled")
            gate.open()
        await house.check(alice, task["id"], client)
    assert desk.text("out.txt") is None
    follow_up = await alice.ask(None, f"{goal} And now?", follow_up_of=task["id"])
    await alice.until(follow_up["id"], "completed")
    run = house.model.run("D06", how)
    assert run.refusals == []
    results = [m for m in run.bodies[-1]["messages"] if m["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == ["call_a", "call_b", "call_c"]
    assert "AAA" in results[0]["content"]
    assert ("BBB" in results[1]["content"]) == (how == "kill")


# ── cursors ───────────────────────────────────────────────────────────────────────────────────


async def test_cursors_of_every_kind_after_a_restart(house: House, alice: Person) -> None:
    """Case B03, with a log that no memory holds."""
    reads = [Call("read_file", path="a.txt", start_line=1, end_line=n) for n in range(1, 101)]
    house.model.script("long", reads)
    task = await alice.ask(house.desk(), "[long] Read it a hundred times")
    last = (await alice.until(task["id"], "completed"))["last_sequence"]
    assert last > 300
    house.server.kill9()
    await house.restart()
    url = f"/api/tasks/{task['id']}/stream"

    async def ids(header: str | None, query: str = "") -> list[int] | int:
        headers = {} if header is None else {b"Last-Event-ID": header.encode()}
        answer = await alice.http.get(url + query, headers=headers)
        if answer.status_code != 200:
            return answer.status_code
        lines = answer.text.splitlines()
        return [int(line.removeprefix("id: ")) for line in lines if line.startswith("id: ")]

    whole, rest = list(range(1, last + 1)), list(range(6, last + 1))
    assert await ids(None) == await ids("0") == whole
    assert await ids("5") == rest
    assert await ids("299") == list(range(300, last + 1))
    assert await ids(str(last - 1)) == [last]
    assert await ids(None, "?last_event_id=5") == await ids(None, "?after=5") == rest
    assert await ids("5", "?last_event_id=9&after=17") == rest, "the header wins"
    for beyond in (str(last), str(last + 1), "9" * 18, "999999999999999999999"):
        assert await ids(beyond) in (204, 400), beyond
    assert await ids(str(last)) == await ids(str(last + 1)) == 204
    for garbage in ("-1", "abc", "5.0", "0x5", "5 6", "٣", "1e3", "9" * 10_000):
        assert await ids(garbage) == 400, garbage[:20]
    for garbage in ("-1", "abc", "5.0", "%00", "9" * 1000):
        assert await ids(None, f"?after={garbage}") == 400, garbage[:20]
    assert await ids("") in (whole, 400)
    assert await ids(None, "?after=%205") in (rest, 400)


# ── at random ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "stops", [1, pytest.param(40, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
async def test_stopped_at_random_moments(house: House, alice: Person, stops: int) -> None:
    """By kill -9 or in order, while people ask, answer and change their minds."""
    chance = random.Random()
    works = [Work(house, alice, f"random-{stops}-{number}") for number in range(stops + 3)]
    house.server.env["E2E_DAWDLE"] = "0.3"
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(persist(work, stack, chance.uniform(0, stops)))
        life = 1.0
        for number in range(stops):
            await asyncio.sleep(chance.uniform(0.05, life))
            stop = house.server.terminate if number % 4 == 1 else house.server.kill9
            await asyncio.to_thread(stop)
            began = time.monotonic()
            await house.restart()
            # On a busy machine everything takes longer: work gets as long as a start took.
            life = max(1.0, time.monotonic() - began)
    for work in works:
        await check_persisted(work)
