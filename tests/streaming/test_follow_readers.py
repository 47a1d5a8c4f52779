"""Readers of every pace: slow ones, late ones, ones that vanish, and what keeps them informed."""

from __future__ import annotations

import asyncio
import gc
import random
import weakref
from contextlib import aclosing
from dataclasses import replace

import pytest
from msgspec import structs

from streaming.follow import follow
from streaming.growing import FRAME_BYTES
from streaming.source import CHUNK_BYTES
from streaming.sse import HEARTBEAT
from tasks.hub import StoredFrame, hub
from tasks.hub.topic import TAIL_FRAMES
from tests.streaming.world import (
    END,
    Client,
    Run,
    World,
    call_started,
    finish,
    kinds,
    note,
    settle,
    started,
    texts,
)
from tests.support.sse import Parser

pytestmark = pytest.mark.usefixtures("clean_hub")


async def test_a_slow_reader_gets_bigger_pieces_and_loses_nothing(run: Run) -> None:
    slow, quick = Client(run.source()), Client(run.source())
    await settle()
    slow.going.clear()
    for word in range(1000):
        run.delta("a", f"word {word} ")
        await asyncio.sleep(0)
    slow.going.set()
    await finish(run, slow, quick)

    assert texts(slow) == texts(quick)
    assert kinds(slow).count("assistant_delta") <= 2
    assert kinds(quick).count("assistant_delta") > 300


async def test_a_slow_reader_holds_no_more_than_one_piece(run: Run) -> None:
    """Neither while the reply is open nor when it was stored meanwhile."""
    client = Client(run.source())
    await settle()
    for stored_meanwhile in (False, True):
        block = f"block {stored_meanwhile}"
        run.delta(block, "é")
        await settle()
        client.going.clear()
        for _ in range(1000):
            run.delta(block, "é" * 512)
        if stored_meanwhile:
            run.commit(*run.reply())
        client.going.set()
        await settle(60)
        run.commit(*run.reply())
    await finish(run, client)

    assert [len(text) for text in texts(client)] == [512_001, 512_001]
    assert client.reader.max_text <= FRAME_BYTES
    deltas = [event for event in client.reader.live if event.type == "assistant_delta"]
    assert len(deltas) > 2 * 512_001 * len("é".encode()) / FRAME_BYTES
    assert client.largest < 512_001 * len("é".encode()) + 3 * FRAME_BYTES


async def test_many_open_blocks_do_not_make_one_huge_piece(run: Run) -> None:
    client = Client(run.source())
    await settle()
    client.going.clear()
    for block in range(20):
        for _ in range(100):
            run.delta(f"call {block}", "x" * 512, "tool_call")
    client.going.set()
    await settle(60)
    assert client.largest < 3 * FRAME_BYTES
    assert len(client.reader.open_blocks) == 20
    await finish(run, client)


async def test_sixty_readers_join_at_random_moments(run: Run) -> None:
    dice = random.Random(7)
    joining = sorted(dice.randrange(200) for _ in range(60))
    clients = []
    for word in range(200):
        while joining and joining[0] == word:
            joining.pop(0)
            seen = dice.randrange(len(run.rows) + 1) or None
            clients.append(Client(run.source(), seen))
        run.delta(f"block {word // 50}", f"word {word} ")
        if word % 50 == 49:
            run.commit(*run.reply())
            run.commit(call_started())
        await settle(dice.randrange(3))
    await finish(run, *clients)

    last = len(run.rows)
    for client in clients:
        first = client.reader.ids[0]
        assert client.reader.ids == list(range(first, last + 1))
        assert client.reader.stored[-1].type == "task_completed"


async def test_a_vanished_client_leaves_no_bell_behind(run: Run) -> None:
    clients = [Client(run.source()) for _ in range(5)]
    await settle()
    for client in clients:
        await client.leave()
    assert hub.followed() == ([], [])
    run.end()
    assert hub.is_empty()


async def test_a_client_that_vanishes_while_the_database_is_read_leaves_no_bell(run: Run) -> None:
    run.end()
    client = Client(run.source())
    await settle(2)
    await client.leave()
    assert hub.is_empty()


async def test_who_is_level_keeps_nothing_of_what_was_read(run: Run) -> None:
    run.commit(*(note() for _ in range(20)), publish=False)
    run.world.unpublished.clear()  # as if another process had stored them
    source, read = run.source(), []

    async def page(after: int, limit: int) -> list[StoredFrame]:
        rows = [structs.replace(row) for row in await source.page(after, limit)]
        read.extend([weakref.ref(row) for row in rows])
        return rows

    client = Client(replace(source, page=page))
    await client.reached(22)
    await settle()
    gc.collect()
    assert len(read) == 20
    assert not any(row() for row in read)
    await finish(run, client)


async def test_a_shutdown_ends_every_stream_without_a_terminal_event(run: Run) -> None:
    clients = [Client(run.source()), Client(run.world.session_source())]
    run.delta("a", "unfinished")
    await settle()
    hub.shutdown()
    await asyncio.gather(*(client.task for client in clients))
    assert all(not client.reader.ended for client in clients)
    run.end()


async def test_a_shutdown_ends_a_stream_in_the_middle_of_a_large_event(run: Run) -> None:
    stream = follow(run.source(), 2)
    await anext(stream)
    run.commit(note("x" * 5 * CHUNK_BYTES))
    assert len(await anext(stream)) < 2 * CHUNK_BYTES
    hub.shutdown()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    run.end()


async def test_a_reader_between_pages_while_the_tail_is_evicted(run: Run) -> None:
    for _ in range(150):
        run.commit(note())
    client = Client(run.source())
    while not client.reader.ids:
        await settle(1)
    client.going.clear()
    for _ in range(2 * TAIL_FRAMES):
        run.commit(note("x" * 3000))
    client.going.set()
    await finish(run, client)
    assert client.reader.ids == list(range(1, len(run.rows) + 1))
    assert client.largest < 2 * CHUNK_BYTES


async def test_a_session_stream_spans_its_tasks_and_stays_open() -> None:
    world = World()
    client = Client(world.session_source())
    await settle()
    for text in ("first", "second"):
        run = world.task()
        run.begin()
        run.commit(started(), call_started())
        run.delta("a", text)
        await settle()
        run.commit(*run.reply(), *END)
        run.end()
        await settle()
    assert client.reader.ids == list(range(1, 13))
    assert texts(client) == ["first", "second"]
    assert kinds(client).count("assistant_delta") == 2
    assert not client.task.done()
    await client.leave()


async def test_a_session_stream_joins_in_the_middle_of_the_second_task() -> None:
    world = World()
    first, second = world.task(), world.task()
    first.begin()
    first.commit(started(), *END)
    first.end()
    second.begin()
    second.commit(started(), call_started())
    second.delta("a", "so far ")
    client = Client(world.session_source(), cursor=3)
    await settle()
    assert client.reader.ids == [4, 5]
    assert client.reader.live[-1].payload["text"] == "so far "
    second.commit(*second.reply(), *END)
    second.end()
    await settle()
    assert client.reader.ids == [4, 5, 6, 7, 8, 9]
    await client.leave()


@pytest.mark.parametrize("cursor", [2, 3, 10**20])
async def test_a_cursor_at_or_beyond_the_last_waits_for_what_comes_next(
    run: Run, cursor: int
) -> None:
    parser = Parser()
    stream = follow(run.source(), cursor)
    received = list(parser.feed(await anext(stream)))
    waiting = asyncio.ensure_future(anext(stream))
    await settle()
    assert not waiting.done()
    run.commit(note())
    received += parser.feed(await waiting)
    assert [event.id for event in received] == [None, 3]
    await stream.aclose()
    run.end()


async def test_a_finished_log_is_replayed_and_ends(run: Run) -> None:
    run.commit(*END)
    run.end()
    client = Client(run.source())
    await client.task
    assert client.reader.ids == [1, 2, 3, 4]


async def test_a_finished_log_with_nothing_left_ends_at_once(run: Run) -> None:
    run.commit(*END)
    run.end()
    client = Client(run.source(), cursor=4)
    await client.task
    assert client.reader.ids == []


async def test_heartbeats_go_out_and_access_is_looked_at_again(run: Run) -> None:
    source = run.source(heartbeat=0.01)
    answers = [2, 2, None]

    async def check() -> int | None:
        return answers.pop(0)

    client = Client(type(source)(**{**vars(source), "check": check}))
    await asyncio.wait_for(client.task, 5)
    assert client.parser.comments == ["connected", "heartbeat", "heartbeat"]
    assert not client.reader.ended
    run.end()


async def test_a_heartbeat_finds_what_no_bell_told(run: Run) -> None:
    client = Client(run.source(heartbeat=0.01))
    await settle()
    run.commit(note(), publish=False)
    await asyncio.wait_for(client.reached(3), 5)
    run.world.publish()
    await finish(run, client)


async def test_what_comes_as_a_heartbeat_is_due_goes_out_behind_it(run: Run) -> None:
    """One ring for both; and the next beat is due at once, as for who reads slowly."""
    async with aclosing(follow(run.source(heartbeat=0), 2)) as stream:
        await anext(stream)
        assert await anext(stream) == HEARTBEAT
        await settle()
        run.commit(note())
        assert await anext(stream) == HEARTBEAT
        assert b"event: user_message" in await anext(stream)
    run.end()


async def test_what_another_process_stored_is_read_when_the_watcher_rings(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.commit(note(), publish=False)
    run.world.unpublished.clear()
    hub.advanced(("task", run.task_id), 3)  # type: ignore[arg-type]
    await settle()
    assert client.reader.ids == [1, 2, 3]
    run.commit(note())
    await finish(run, client)
    assert client.reader.ids == list(range(1, 8))
