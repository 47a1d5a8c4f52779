"""The queue's promises: a job for every task that can run, one for each turn, and an end to retries."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.e2e import Person
from tests.support.e2e_model import Call, Hold, words
from tests.support.held import Gate
from tests.support.scaled import ScaledHouse
from tests.support.waiting import happened


def jobs(house: ScaledHouse, task_id: str) -> list[tuple[str, int]]:
    """Status and attempt of each, in order."""
    found = "SELECT status, (args->>'attempt')::int FROM procrastinate_jobs WHERE queueing_lock = ?"
    return [(row[0], row[1]) for row in house.sql(f"{found} ORDER BY id", f"task:{task_id}")]


@contextmanager
def paused(house: ScaledHouse) -> Iterator[None]:
    """Nobody fetches a job, and nobody is silent for so long that others call it dead."""
    for worker in house.server.workers:
        worker.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in house.server.workers:
            worker.process.send_signal(signal.SIGCONT)


async def test_a_task_that_is_asked_for_twenty_times_at_once_has_one_job(
    house: ScaledHouse, alice: Person
) -> None:
    """Nineteen of them are rolled back, and what they had deferred with them."""
    name = house.model.script("twenty", ["Done."])
    body = {"goal": f"[{name}] Go", "workspace_id": house.desk().id}
    headers = {"Idempotency-Key": name}
    answers = await asyncio.gather(
        *(alice.http.post("/api/tasks", json=body, headers=headers) for _ in range(20))
    )
    (task_id,) = {answer.json()["id"] for answer in answers}
    await alice.until(task_id, "completed")
    await happened(lambda: jobs(house, task_id) == [("succeeded", 0)])


async def test_each_answer_is_a_job_and_none_is_an_attempt(
    house: ScaledHouse, alice: Person
) -> None:
    writes = [Call("write_file", path=f"{letter}.txt", content=letter) for letter in "abc"]
    name = house.model.script("thrice", *([write] for write in writes), ["Done."])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        for number in (1, 2, 3):
            await alice.approve(await client.approval(number))
        await client.end()
    await happened(lambda: jobs(house, task["id"]) == [("succeeded", 0)] * 4)


async def test_a_task_that_brings_its_workers_down_is_given_up(
    house: ScaledHouse, alice: Person
) -> None:
    """Nine died with it before it could begin; here is the tenth."""
    name = house.model.script("deadly", ["Done."])
    desk = house.desk()
    gate = Gate(desk.folder, "begin").close()
    task = await alice.ask(desk, f"[{name}] Go")
    await happened(lambda: gate.reached.exists() and gate.reached.read_text())
    house.sql(
        """UPDATE procrastinate_jobs SET args = jsonb_set(args, '{attempt}', '9')
        WHERE queueing_lock = ? AND status = 'doing'""",
        f"task:{task['id']}",
    )
    house.worker_with(int(gate.reached.read_text())).kill9()
    gate.open()
    failed = await alice.until(task["id"], "failed")
    assert failed["error"]["code"] == "recovery_failed"
    assert jobs(house, task["id"])[0] == ("failed", 9)


LOST = {
    "deleted": "DELETE FROM procrastinate_jobs WHERE queueing_lock = ?",
    "fetched and forgotten": """
        UPDATE procrastinate_jobs SET status = 'doing',
            worker_id = (SELECT max(id) FROM procrastinate_workers)
        WHERE queueing_lock = ?""",
}


@pytest.mark.parametrize(
    "how", ["deleted", pytest.param("fetched and forgotten", marks=pytest.mark.long)]
)
async def test_a_task_whose_job_got_lost_is_found(
    house: ScaledHouse, alice: Person, how: str
) -> None:
    """A database that restarts may execute a fetch whose answer reaches nobody."""
    name = house.model.script(f"lost-{len(how)}", ["Done."])
    with paused(house):
        task = await alice.ask(house.desk(), f"[{name}] Go")
        house.sql(LOST[how], f"task:{task['id']}")
    await alice.until(task["id"], "completed")
    await house.check(alice, task["id"])


async def test_a_worker_that_cannot_go_on_gives_its_runs_back_and_fails(
    house: ScaledHouse, alice: Person
) -> None:
    """A supervisor starts what ended with an error; here the queue's tables do not fit."""
    pause = Hold()
    name = house.model.script("broken", [*words(10), pause, *words(20)[10:]])
    task = await alice.ask(house.desk(), f"[{name}] Go")
    async with alice.follow(task["id"]) as client:
        await client.words(10)
        house.sql("ALTER FUNCTION procrastinate_update_heartbeat_v1 RENAME TO elsewhere")
        try:
            ends = [await asyncio.to_thread(worker.wait, 30) for worker in house.server.workers]
        finally:
            house.sql("ALTER FUNCTION elsewhere RENAME TO procrastinate_update_heartbeat_v1")
        assert ends == [1, 1]
        assert "A part of this worker ended by itself" in house.server.workers[0].log
        await asyncio.to_thread(house.complete)
        recovered = await client.seen("task_recovered")
        assert recovered.payload["previous_worker"] is None
        pause.release()
        await client.end()
        await house.check(alice, task["id"], client)
