"""Workers that are killed, paused and told to stop, and the session's order among many of them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from tests.support.daphne import manage
from tests.support.e2e import Person
from tests.support.e2e_model import Call, Hold, words
from tests.support.held import Gate
from tests.support.scaled import ScaledHouse
from tests.support.sse import Event
from tests.support.waiting import happened

CONCURRENCY = 200
"""Of a worker, as shipped."""
ANSWER = "".join(f"w{number} " for number in range(20))


def talker(house: ScaledHouse, name: str) -> tuple[str, Hold]:
    """A script that pauses in the middle of its answer."""
    pause = Hold()
    return house.model.script(name, [*words(10), pause, *words(20)[10:]]), pause


async def test_another_worker_takes_over_from_killed_ones(
    house: ScaledHouse, alice: Person
) -> None:
    """One was speaking; the other stood before an effect, which is put to a person."""
    talks, pause = talker(house, "killed")
    write = Call("write_file", path="out.txt", content="x")
    writes = house.model.script("killed-writes", [write], ["Done."])
    desk = house.desk()
    gate = Gate(desk.folder, "out.txt.before").close()
    speaks = await alice.ask(house.desk(), f"[{talks}] Go")
    acts = await alice.ask(desk, f"[{writes}] Go")
    async with alice.follow(speaks["id"]) as speaking, alice.follow(acts["id"]) as acting:
        await alice.approve(await acting.approval())
        await happened(gate.reached.exists)
        await speaking.words(10)
        before = [await alice.task(task["id"]) for task in (speaks, acts)]
        for worker in {house.worker_of(task) for task in before}:
            worker.kill9()
        gate.open()
        pause.release()
        await asyncio.to_thread(house.complete)
        recovered = await speaking.seen("task_recovered")
        assert recovered.payload["previous_worker"] == before[0]["worker"]
        await speaking.end()
        question = await acting.seen("approval_required", 2)
        assert question.payload["kind"] == "unknown_effect"
        assert desk.text("out.txt") is None
        await alice.approve(question.payload["approval_id"], answer="retry")
        await acting.end()
        await house.check(alice, speaks["id"], speaking)
        await house.check(alice, acts["id"], acting)
    after = await alice.task(speaks["id"])
    assert (after["run"], after["final_answer"]) == (2, ANSWER)
    assert desk.text("out.txt") == "x"
    assert Gate(desk.folder, "out.txt").calls == 1


async def test_a_paused_worker_that_comes_back_writes_nothing(
    house: ScaledHouse, alice: Person
) -> None:
    name, pause = talker(house, "paused")
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        await client.words(10)
        paused = house.worker_of(await alice.task(task["id"]))
        paused.process.send_signal(signal.SIGSTOP)
        try:
            await client.seen("task_recovered")
        finally:
            paused.process.send_signal(signal.SIGCONT)
        # Both hear the rest of the answer now; only the second may store it.
        pause.release()
        await client.end()
        log = await house.check(alice, task["id"], client)
    types = [event["type"] for event in log]
    assert types.count("task_started") == 2
    assert types.count("assistant_message") == 1
    assert paused.process.poll() is None
    again = await alice.ask(house.desk(), f"[{name}] Again")
    await alice.until(again["id"], "completed")


async def test_a_worker_that_is_paused_in_a_transaction_does_not_keep_its_task(
    house: ScaledHouse, alice: Person
) -> None:
    """It holds the lock of the task's row, which whoever takes over needs."""
    name = house.model.script("locked", ["Done."])
    desk = house.desk()
    gate = Gate(desk.folder, "begun").close()
    task = await alice.ask(desk, f"[{name}] Go")
    await happened(lambda: gate.reached.exists() and gate.reached.read_text())
    paused = house.worker_with(int(gate.reached.read_text()))
    paused.process.send_signal(signal.SIGSTOP)
    gate.open()
    try:
        await alice.until(task["id"], "completed")
    finally:
        paused.process.send_signal(signal.SIGCONT)
    await house.check(alice, task["id"])


async def test_a_worker_that_is_told_to_stop_hands_its_runs_over(
    house: ScaledHouse, alice: Person
) -> None:
    """At once, and what was stored stays: nobody waits for a lease or a heartbeat to run out."""
    pause = Hold()
    read = Call("read_file", path="a.txt")
    name = house.model.script("handed", [*words(10), read], [*words(10), pause, *words(20)[10:]])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        await client.until(lambda reader: "w9 " in "".join(reader.open_blocks.values()))
        await client.seen("tool_call_finished")
        await client.words(10)
        first = house.worker_of(await alice.task(task["id"]))
        assert await asyncio.to_thread(first.terminate) == 0
        recovered = await client.seen("task_recovered")
        assert recovered.payload["previous_worker"] is None, "in good order"
        pause.release()
        await client.end()
        log = await house.check(alice, task["id"], client)
    assert [event["type"] for event in log].count("tool_call_finished") == 1
    assert (await alice.task(task["id"]))["final_answer"] == ANSWER


async def test_a_cancel_reaches_the_worker(house: ScaledHouse, alice: Person) -> None:
    name, _ = talker(house, "cancelled")
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        await client.words(10)
        await alice.cancel(task["id"])
        await client.end("cancelled")
        await house.check(alice, task["id"], client)
    ((status,),) = house.sql(
        "SELECT status FROM procrastinate_jobs WHERE queueing_lock = ?", f"task:{task['id']}"
    )
    assert status in ("doing", "aborted")


async def test_a_session_does_one_thing_at_a_time(house: ScaledHouse, alice: Person) -> None:
    """While it waits for a person, too; another session is not held up."""
    name = house.model.script("first", [Call("write_file", path="o.txt", content="x")], ["One."])
    other = house.model.script("other", ["Two."])
    first = await alice.ask(house.desk(), f"[{name}] Go")
    session = first["session_id"]
    async with alice.follow(first["id"]) as client:
        approval = await client.approval()
        second = await alice.ask(None, f"[{other}] Go", session_id=session, when_busy="queue")
        elsewhere = await alice.ask(house.desk(), f"[{other}] Go")
        await alice.until(elsewhere["id"], "completed")
        assert (await alice.task(second["id"]))["status"] == "queued"
        await alice.approve(approval)
        await client.end()
    await alice.until(second["id"], "completed")
    log = await alice.get(f"/api/sessions/{session}/events?limit=1000")
    types = [(event["task_id"], event["type"]) for event in log["items"]]
    assert types.index((second["id"], "task_started")) > types.index(
        (first["id"], "task_completed")
    )


async def test_whoever_comes_late_gets_the_open_block_from_the_worker(
    house: ScaledHouse, alice: Person
) -> None:
    name, pause = talker(house, "late")
    task = await alice.ask(house.desk(), f"[{name}] Go")
    for web in house.server.webs:
        async with house.person_at("alice", web.url) as late, late.follow(task["id"]) as client:
            shown: Event = await client.seen("snapshot")
            await client.words(10)
            assert shown.payload["text"].startswith("w0 ")
    async with alice.follow(task["id"]) as client:
        await client.words(10)
        pause.release()
        await client.end()
        await house.check(alice, task["id"], client)


async def test_five_hundred_idle_streams_hold_neither_threads_nor_connections(
    house: ScaledHouse, alice: Person
) -> None:
    task = await alice.ask(house.desk(), "[C01/crowd] Write it")
    await alice.until(task["id"], "waiting_approval")
    web = house.server.webs[0]
    async with house.person_at("alice", web.url) as many:
        await many.task(task["id"])
        before, base = threads(web.pid), connections(house)
        readers = [asyncio.create_task(open_stream(many, task["id"])) for _ in range(500)]
        streams = await asyncio.gather(*readers)
        assert threads(web.pid) <= before + 16
        assert connections(house) <= base + 8
        await many.task(task["id"])
        for stream in streams:
            await stream.aclose()
    await alice.cancel(task["id"])


@pytest.mark.parametrize("extra", [0, pytest.param(100, marks=pytest.mark.long)])
async def test_one_worker_runs_two_hundred_tasks_at_once(
    house: ScaledHouse, alice: Person, extra: int
) -> None:
    """What it has no place for waits in the queue, and nobody's place is kept by who waits."""
    name, pause = talker(house, f"crowd-{extra}")
    spare, only = house.server.workers
    assert await asyncio.to_thread(spare.terminate) == 0
    alone, desk = threads(only.pid), house.desk()
    tasks = [await alice.ask(desk, f"[{name}] Go") for _ in range(CONCURRENCY + extra)]
    asked = house.model.runs[name].bodies
    await happened(lambda: len(asked) == CONCURRENCY)
    running = house.sql("SELECT count(*) FROM tasks_task WHERE status = 'running'")
    assert running == [(CONCURRENCY,)]
    assert threads(only.pid) <= alone + 16
    pause.release()
    for task in tasks:
        await alice.until(task["id"], "completed")
    await house.check(alice, tasks[-1]["id"])
    assert len(asked) == len(tasks)


async def open_stream(person: Person, task_id: str) -> httpx.Response:
    """Open, and past its replay."""
    request = person.http.build_request("GET", f"/api/tasks/{task_id}/stream")
    response = await person.http.send(request, stream=True)
    assert response.status_code == 200
    heard = b""
    async for chunk in response.aiter_raw():
        heard += chunk
        if b"approval_required" in heard:
            break
    return response


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def connections(house: ScaledHouse) -> int:
    """Of the first web process to the database."""
    asked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ?"
    ((number,),) = house.sql(asked, "web0")
    return int(number)


LOOK = """
from django.test import Client
from django.contrib.auth.models import User
admin = User.objects.create_superuser("root")
client = Client(headers={"host": "127.0.0.1"})
client.force_login(admin)
page = client.get("/admin/procrastinate/procrastinatejob/")
print(page.status_code, b"run_task" in page.content, b'name="action"' in page.content)
"""


@pytest.mark.long
async def test_jobs_can_be_looked_at_and_not_touched(house: ScaledHouse, alice: Person) -> None:
    name = house.model.script("looked-at", ["Done."])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    await alice.until(task["id"], "completed")
    command = ("shell", "-v0", "-c", LOOK)
    said = await asyncio.to_thread(manage, house.state, *command, env=house.env)
    assert said.splitlines()[-1] == "200 True False"


PLAN = """
from datetime import timedelta
from django.utils import timezone
from tasks.models import Schedule, Workspace
desk = Workspace.objects.get(pk="{desk}")
due = timezone.now() - timedelta(minutes=1)
Schedule.objects.create(name="nightly", owner=desk.owner, workspace=desk, goal="[tick] Go",
    cron="0 0 1 1 *", time_zone="UTC", next_due_at=due)
"""


@pytest.mark.long
async def test_one_tick_per_due_time_however_many_workers_there_are(
    house: ScaledHouse, alice: Person
) -> None:
    """The clock of the queue strikes every minute."""
    house.model.script("tick", ["Done."])
    plan = PLAN.format(desk=house.desk().id)
    await asyncio.to_thread(manage, house.state, "shell", "-v0", "-c", plan, env=house.env)
    goal = ""
    async with asyncio.timeout(100):
        while goal != "[tick] Go":
            await asyncio.sleep(1)
            goal = (await alice.get("/api/tasks?limit=1"))["items"][0]["goal"]
    await asyncio.sleep(3)  # for a second one, if there were one
    assert house.sql("SELECT count(*) FROM tasks_scheduletick") == [(1,)]
    assert house.sql("SELECT count(*) FROM tasks_task WHERE goal = '[tick] Go'") == [(1,)]
