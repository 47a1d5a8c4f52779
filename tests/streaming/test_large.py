"""Large frames: sent in pieces, held once for everybody."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async

from agent.events import AgentCompleted, TaskCompleted
from streaming import large
from streaming.source import CHUNK_BYTES
from tasks.hub import StoredFrame
from tests.streaming.world import Client, Run, World
from tests.support.waiting import happened

pytestmark = pytest.mark.usefixtures("clean_hub")
ANSWER = "wörd " * 60_000


@pytest.fixture
async def run() -> AsyncIterator[Run]:
    run = World().task()
    run.begin()
    yield run
    run.end()


async def test_a_large_event_goes_out_in_pieces_and_whole(run: Run) -> None:
    run.commit(AgentCompleted(final_answer=ANSWER), TaskCompleted())
    client = Client(run.source())
    await client.task
    assert client.largest <= CHUNK_BYTES + 100
    assert [event.type for event in client.reader.stored] == ["agent_completed", "task_completed"]
    assert client.reader.stored[0].payload["final_answer"] == ANSWER


async def test_a_large_event_behind_small_ones_and_before_others(run: Run) -> None:
    for number in range(3):
        run.commit(AgentCompleted(final_answer=str(number)))
        run.commit(AgentCompleted(final_answer=ANSWER))
    run.commit(TaskCompleted())
    client = Client(run.source())
    await client.task
    assert client.reader.ids == list(range(1, 8))
    assert client.largest <= 2 * CHUNK_BYTES


def frame(sequence: int, size: int) -> StoredFrame:
    return StoredFrame(
        task_id="t",
        session_id="s",
        sequence=sequence,
        position=sequence,
        type="x",
        body=b"x" * size,
    )


class Log:
    """Events of 100 kB; a read lasts until it is let go."""

    def __init__(self) -> None:
        self.reads: list[int] = []
        self.may_end = threading.Event()
        self.stored = True
        self.page = large.shared("task", uuid4().hex, self._read)

    def _read(self, after: int, limit: int) -> list[StoredFrame]:
        self.reads.append(after)
        assert self.may_end.wait(10)
        return [frame(after + 1, 100_000), frame(after + 2, 10)] if self.stored else []


async def test_it_is_held_once_while_somebody_sends_it() -> None:
    log = Log()
    log.may_end.set()
    first, again = await log.page(0, 100), await log.page(0, 100)
    assert again[0] is first[0]
    assert log.reads == [0]
    del first, again
    await sync_to_async(gc.collect)()  # the thread forgets its last answer with its next job
    await log.page(0, 100)
    assert log.reads == [0, 0]


async def test_a_crowd_behind_the_same_page_reads_it_once() -> None:
    log = Log()
    crowd = [asyncio.create_task(log.page(0, 100)) for _ in range(40)]
    await happened(lambda: bool(log.reads))
    crowd.pop().cancel()
    log.may_end.set()
    pages = await asyncio.gather(*crowd)
    assert log.reads == [0]
    assert len({id(page[0]) for page in pages}) == 1


async def test_when_the_one_who_reads_leaves_another_reads() -> None:
    log = Log()
    leaving = asyncio.create_task(log.page(0, 100))
    waiting = asyncio.create_task(log.page(0, 100))
    await happened(lambda: bool(log.reads))
    leaving.cancel()
    log.may_end.set()
    assert len(await waiting) == 2
    assert leaving.cancelled()


async def test_who_was_rung_for_a_newer_event_is_not_content_with_an_older_look() -> None:
    log = Log()
    log.stored = False
    early = asyncio.create_task(log.page(0, 100))
    late = asyncio.create_task(log.page(0, 100))
    await happened(lambda: bool(log.reads))
    log.may_end.set()
    assert await early == []
    log.stored = True
    assert len(await late) == 2
