"""Large frames: sent in pieces, held once for everybody."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest

from agent.events import AgentCompleted, TaskCompleted
from streaming import large
from streaming.follow import CHUNK_BYTES
from tasks.hub import StoredFrame
from tests.streaming.world import Client, Run, World

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


def test_it_is_read_once_while_somebody_holds_it() -> None:
    reads: list[int] = []

    def read(after: int, limit: int) -> list[StoredFrame]:
        reads.append(after)
        return [frame(after + 1, 100_000), frame(after + 2, 10)]

    page = large.shared("task", "t", read)
    first, again = page(0, 100), page(0, 100)
    assert again[0] is first[0]
    assert reads == [0]
    del first, again
    gc.collect()
    page(0, 100)
    assert reads == [0, 0]
