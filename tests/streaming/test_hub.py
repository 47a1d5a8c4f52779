"""The hub by itself: topics come and go, the tail has no hole, bells ring as often as is good."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.events import (
    TERMINAL_TYPES,
    StoredEvent,
    ToolCallDelta,
    ToolProgress,
)
from streaming.follow import follow
from tasks.hub import BLOCKS_END_TYPES, After, Hub, Key, LiveBlock, hub
from tasks.hub.topic import TAIL_BYTES, TAIL_FRAMES
from tests.streaming.world import World, settle
from tests.support.hub import NOTE, delta, frame, numbers

# ── topics ────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_exists_while_somebody_follows() -> None:
    own = Hub()
    assert not own.wants("t", "s")
    with own.listen(Key("session", "s")), own.listen(Key("session", "s")):
        assert own.wants("t", "s")
        assert own.followed() == ([], ["s"])
    assert not own.wants("t", "s")
    assert own.is_empty()


def test_a_topic_exists_while_a_run_is_active(own: Hub) -> None:
    assert own.wants("t", "s")
    assert own.followed() == ([], [])
    with own.listen(Key("task", "t")):
        own.idle("t")
        assert own.followed() == (["t"], [])
    assert own.is_empty()
    own.idle("t")


def test_what_nobody_wants_is_not_kept() -> None:
    own = Hub()
    own.committed([frame(1)])
    own.advanced(Key("task", "t"), 9)
    own.live("t", "s", delta(0, "x"))
    assert own.is_empty()


# ── the tail ──────────────────────────────────────────────────────────────────────────────────


def test_the_tail_gives_what_follows_a_cursor(own: Hub) -> None:
    own.committed([frame(n) for n in range(1, 6)])
    assert numbers(own, 0) == [1, 2, 3, 4, 5]
    assert numbers(own, 3) == [4, 5]
    assert numbers(own, 5) == numbers(own, 50) == []


def test_a_commit_that_does_not_fit_starts_the_tail_anew(own: Hub) -> None:
    own.committed([frame(1), frame(2)])
    own.committed([frame(5)])
    assert numbers(own, 2) == []
    assert numbers(own, 4) == [5]


def test_a_commit_that_is_heard_twice_counts_once(own: Hub) -> None:
    own.committed([frame(1), frame(2)])
    own.committed([frame(1), frame(2), frame(3)])
    assert numbers(own, 0) == [1, 2, 3]


def test_a_late_commit_still_fits_after_the_watcher_was_ahead(own: Hub) -> None:
    own.committed([frame(1)])
    own.advanced(Key("task", "t"), 2)
    own.committed([frame(2)])
    assert numbers(own, 0) == [1, 2]


def test_the_tail_is_bounded_in_frames_and_bytes(own: Hub) -> None:
    own.committed([frame(n) for n in range(1, TAIL_FRAMES + 11)])
    assert numbers(own, 9) == []
    assert len(numbers(own, 10)) == TAIL_FRAMES
    own.committed([frame(TAIL_FRAMES + 11, body=b"x" * (TAIL_BYTES - 10))])
    assert len(numbers(own, TAIL_FRAMES + 1)) == 10
    own.committed([frame(TAIL_FRAMES + 12, body=b"x" * (TAIL_BYTES + 1))])
    assert numbers(own, TAIL_FRAMES + 11) == []


def test_a_session_counts_positions(own: Hub) -> None:
    own.committed([frame(1, position=7), frame(2, position=8)])
    assert numbers(own, 7, "session", "s") == [2]


# ── live state ────────────────────────────────────────────────────────────────────────────────


def test_old_events_end_no_younger_block(own: Hub) -> None:
    """Somebody replays from the database while a reply is written."""
    own.committed([frame(1, "task_started"), frame(2, "assistant_message", block_id="a")])
    own.live("t", "s", delta(0, "younger"))
    own.live("t", "s", ToolProgress(tool_call_id="c", text="half"))
    old = [
        frame(1, "task_started"),
        frame(2, "assistant_message", block_id="a", text="older, and longer"),
    ]
    own.settle(old)
    with own.listen(Key("task", "t")) as seat:
        assert seat.topic.live["t", "a"].slice(0, 100) == "younger"
        assert ("t", "c") in seat.topic.progress


def test_only_the_own_task_s_live_state_ends(own: Hub) -> None:
    own.running("u", "s", 0, 0)
    own.live("t", "s", delta(0, "mine"))
    own.live("u", "s", delta(0, "its"))
    own.committed([frame(1, "model_call_retried")])
    with own.listen(Key("session", "s")) as seat:
        assert list(seat.topic.live) == [("u", "a")]


def test_a_finished_call_ends_its_own_progress(own: Hub) -> None:
    for call in ("c", "d"):
        own.live("t", "s", ToolProgress(tool_call_id=call, text="half"))
    own.committed([frame(1, "tool_call_finished", tool_call_id="c")])
    with own.listen(Key("task", "t")) as seat:
        assert list(seat.topic.progress) == [("t", "d")]
        own.committed([frame(2, "tool_call_finished")])
        assert list(seat.topic.progress) == []


def test_the_name_of_a_call_is_the_last_that_was_told(own: Hub) -> None:
    call: dict[str, Any] = {"step": 1, "block_id": "a", "index": 2}
    own.live("t", "s", ToolCallDelta(**call, name="", offset=0, delta="{"))
    own.live("t", "s", ToolCallDelta(**call, name="read_file", offset=1, delta="}"))
    with own.listen(Key("task", "t")) as seat:
        block = seat.topic.live["t", "a"]
        assert (block.kind, block.index, block.name) == ("tool_call", 2, "read_file")


@given(st.lists(st.text(min_size=1, max_size=700), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_a_block_gives_any_piece_of_its_text(pieces: list[str], data: st.DataObject) -> None:
    block = LiveBlock("t", delta(0, ""), After(0, 0), 1)
    for piece in pieces:
        assert block.apply(delta(block.length, piece))
    whole = "".join(pieces)
    start = data.draw(st.integers(0, len(whole)))
    limit = data.draw(st.integers(0, len(whole) + 1))
    assert block.slice(start, limit) == whole[start : start + limit]


def test_an_answer_of_two_megabytes_costs_what_it_is_long() -> None:
    """Few pieces to hold, and what goes out is the text once, however many deltas it came in."""
    block = LiveBlock("t", delta(0, ""), After(0, 0), 1)
    for _ in range(400_000):
        block.apply(delta(block.length, "token"))
    assert block.length == 2_000_000
    assert len(block._pieces) <= 2_000
    assert block.slice(1_999_990, 100) == "tokentoken"


@pytest.mark.usefixtures("clean_hub")
async def test_a_long_answer_is_sent_once_however_many_deltas() -> None:
    run = World().task()
    run.begin()
    run.commit(NOTE)
    sent = 0

    async def read() -> None:
        nonlocal sent
        async for chunk in follow(run.source(), 0):
            sent += len(chunk)

    reading = asyncio.create_task(read())
    await settle()
    for _ in range(2_000):
        run.delta("a", "x" * 500)
        await asyncio.sleep(0)
    await settle()
    assert 1_000_000 < sent < 1_600_000
    reading.cancel()
    await asyncio.wait([reading])
    run.end()


# ── bells ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("clean_hub")
async def test_followers_in_step_share_one_encoding() -> None:
    run = World().task()
    run.begin()
    run.commit(NOTE)
    streams = [follow(run.source(), 0) for _ in range(3)]
    for stream in streams:
        for _ in range(2):
            await anext(stream)
    waiting = [asyncio.ensure_future(anext(stream)) for stream in streams]
    await settle()
    run.delta("a", "shared")
    first, second, third = await asyncio.gather(*waiting)
    assert first is second is third
    for stream in streams:
        await stream.aclose()
    run.end()


async def test_a_bell_rung_before_the_wait_does_not_wait() -> None:
    own = Hub()
    with own.listen(Key("task", "t")) as seat:
        seat.bell.ring()
        seat.bell.ring()
        await asyncio.wait_for(seat.bell.wait(), 5)
        seat.bell.clear()
        waiting = asyncio.create_task(seat.bell.wait())
        await asyncio.sleep(0)
        seat.bell.ring()
        seat.bell.ring()
        await asyncio.wait_for(waiting, 5)


# ── from the writer's thread ──────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("clean_hub")
async def test_commits_arrive_from_another_thread_in_order() -> None:
    with hub.listen(Key("task", "t")) as seat:

        def write() -> None:
            for number in range(1, 51):
                if hub.wants("t", "s"):
                    hub.committed_from_thread([frame(number)])

        writer = threading.Thread(target=write)
        writer.start()
        while seat.topic.last < 50:
            await seat.bell.wait()
            seat.bell.clear()
        writer.join()
        assert [found.sequence for found in seat.topic.after(0)] == list(range(1, 51))


def test_a_commit_without_a_loop_is_nobody_s_news() -> None:
    own = Hub()
    own.committed_from_thread([frame(1)])
    loop = asyncio.new_event_loop()
    own.attach(loop)
    loop.close()
    own.committed_from_thread([frame(1)])
    own.committed_from_thread([])


def test_all_of_a_commit_happens_before_the_bell(own: Hub) -> None:
    own.live("t", "s", delta(0, "half"))
    with own.listen(Key("task", "t")) as seat:
        block = seat.topic.live["t", "a"]
        own.committed(
            [
                frame(1, "assistant_message", block_id="a", text="half and half"),
                frame(2, "model_call_finished"),
            ]
        )
        assert seat.bell.rung
        assert seat.topic.live == {}
        assert block.slice(0, 99) == "half and half"
        assert seat.topic.last == 2


def test_what_a_run_started_with_is_what_its_blocks_follow(own: Hub) -> None:
    own.running("u", "s", 4, 9)
    own.live("u", "s", delta(0, "x"))
    with own.listen(Key("session", "s")) as seat:
        assert seat.topic.live["u", "a"].after == After(4, 9)
        assert seat.topic.last == 9


def test_the_vocabulary_names_what_ends_open_blocks() -> None:
    tags = {str(event.__struct_config__.tag) for event in get_args(StoredEvent)}
    assert tags >= BLOCKS_END_TYPES
    assert tags - BLOCKS_END_TYPES >= {"agent_completed", "approval_required", "user_message"}
    assert BLOCKS_END_TYPES > TERMINAL_TYPES
