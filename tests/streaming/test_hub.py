"""The hub by itself: topics come and go, the tail has no hole, bells ring as often as is good."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.events import (
    TERMINAL_TYPES,
    AssistantDelta,
    StoredEvent,
    ToolCallDelta,
    ToolProgress,
    UserMessageAdded,
)
from streaming.follow import follow
from tasks.hub import BLOCKS_END_TYPES, After, Hub, Key, LiveBlock, StoredFrame, hub
from tasks.hub.pace import LIVE_RINGS_BURST
from tasks.hub.topic import TAIL_BYTES, TAIL_FRAMES
from tests.streaming.world import World, settle

NOTE = UserMessageAdded(message_id="m", text="and this", by="alice")


def frame(sequence: int, type_: str = "user_message", **fields: Any) -> StoredFrame:
    values: dict[str, Any] = {"body": b"x", "position": sequence} | fields
    return StoredFrame(task_id="t", session_id="s", sequence=sequence, type=type_, **values)


def delta(offset: int, text: str, block_id: str = "a") -> AssistantDelta:
    return AssistantDelta(step=1, block_id=block_id, offset=offset, delta=text)


def numbers(own: Hub, cursor: int, kind: str = "task", id_: str = "t") -> list[int]:
    with own.listen(Key(kind, id_)) as seat:  # type: ignore[arg-type]
        return [found.sequence for found in seat.topic.after(cursor)]


@pytest.fixture
def own() -> Hub:
    own = Hub()
    own.running("t", "s", 0, 0)
    return own


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


class Clock:
    """The part of a loop that pacing needs, with the time in our hands."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in [timer for timer in self.timers if timer.when <= self.now]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.callback()


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


def write(own: Hub, clock: Clock, deltas: int, seconds: float, start: int = 0) -> int:
    """How often one follower was woken while so many deltas came in so much time."""
    rings = 0
    with own.listen(Key("task", "t")) as seat:
        for number in range(start, start + deltas):
            own.live("t", "s", delta(number, "x"))
            rings += seat.bell.rung
            seat.bell.clear()
            clock.pass_time(seconds / deltas)
            rings += seat.bell.rung
            seat.bell.clear()
        clock.pass_time(1)
        rings += seat.bell.rung
    return rings


@pytest.fixture
def clock(own: Hub) -> Clock:
    clock = Clock()
    own.attach(clock, 0.04)  # type: ignore[arg-type]
    return clock


def test_an_idle_hub_rings_for_every_delta(own: Hub, clock: Clock) -> None:
    assert write(own, clock, 100, 1.0) == 100


def test_under_load_deltas_are_gathered(own: Hub, clock: Clock) -> None:
    rings = write(own, clock, 10_000, 1.0)
    # The burst, then what the rate allows; never less than one per interval.
    assert 25 <= rings <= 2_300


def test_many_followers_are_load(own: Hub, clock: Clock) -> None:
    seats = [own.listen(Key("task", "t")) for _ in range(200)]
    assert 25 <= write(own, clock, 100, 1.0) <= 60
    for seat in seats:
        seat.__exit__()


def test_the_first_delta_of_a_block_never_waits(own: Hub, clock: Clock) -> None:
    with own.listen(Key("session", "s")) as other, own.listen(Key("task", "t")) as seat:
        for number in range(2 * LIVE_RINGS_BURST):
            own.live("t", "s", delta(number, "x"))
        heard = []
        for next_ in (delta(2 * LIVE_RINGS_BURST, "x"), delta(0, "x", "b")):
            seat.bell.clear()
            own.live("t", "s", next_)
            heard.append(seat.bell.rung)
        assert heard == [False, True]
        assert other.bell.rung


def test_after_load_the_hub_is_idle_again(own: Hub, clock: Clock) -> None:
    write(own, clock, 10_000, 1.0)
    assert write(own, clock, 50, 1.0, start=10_000) == 50


def test_a_hub_that_is_detached_rings_no_more(own: Hub, clock: Clock) -> None:
    with own.listen(Key("task", "t")) as seat:
        for number in range(LIVE_RINGS_BURST + 10):
            own.live("t", "s", delta(number, "x"))
        own.detach()
        seat.bell.clear()
        clock.pass_time(1)
        assert not seat.bell.rung
        own.live("t", "s", delta(LIVE_RINGS_BURST + 10, "x"))
        assert seat.bell.rung


# ── how often runs read on ────────────────────────────────────────────────────────────────────


def load(own: Hub, followers: int) -> ExitStack:
    """So many followers, and all the credit used up; the last delta is still to be rung for."""
    seats = ExitStack()
    for _ in range(followers):
        seats.enter_context(own.listen(Key("task", "t")))
    for number in range(2 * LIVE_RINGS_BURST // followers + 1):
        own.live("t", "s", delta(number, "x"))
    return seats


async def test_a_run_reads_on_at_once_while_there_is_little_to_do(own: Hub, clock: Clock) -> None:
    with own.listen(Key("task", "t")) as seat:
        for number in range(10):
            seat.bell.clear()
            own.live("t", "s", delta(number, "x"))
            await own.turn("t")
            assert seat.bell.rung
    assert not clock.timers


async def test_under_load_runs_read_on_together_and_what_they_read_is_shown_at_once(
    own: Hub, clock: Clock
) -> None:
    own.running("other", "s", 0, 0)
    with load(own, 100), own.listen(Key("task", "t")) as seat:
        turns = [asyncio.create_task(own.turn(run)) for run in ("t", "other")]
        await settle()
        assert not any(turn.done() for turn in turns)
        clock.pass_time(0.04)
        await settle()
        assert all(turn.done() for turn in turns)
        seat.bell.clear()
        own.live("t", "s", delta(seat.topic.live["t", "a"].length, "x"))
        assert seat.bell.rung


@pytest.mark.parametrize(("followers", "longest"), [(25, 0.02), (200, 0.04)])
def test_beats_come_as_often_as_what_moves_in_them_allows(
    own: Hub, clock: Clock, followers: int, longest: float
) -> None:
    """A delta every millisecond: the longest time that a follower was not woken, once it is busy."""
    rung: list[float] = []
    with load(own, followers), own.listen(Key("task", "t")) as seat:
        start = seat.topic.live["t", "a"].length
        for number in range(start, start + 2000):
            seat.bell.clear()
            own.live("t", "s", delta(number, "x"))
            clock.pass_time(0.001)
            rung += [clock.now] if seat.bell.rung else []
    assert max(later - earlier for earlier, later in pairwise(rung[10:])) < longest + 0.003


def test_what_comes_after_a_pause_does_not_wait_for_the_beat_after_it(
    own: Hub, clock: Clock
) -> None:
    with load(own, 200), own.listen(Key("task", "t")) as seat:
        clock.pass_time(0.04)
        clock.pass_time(0.05)  # too little for two hundred to be woken again without a beat
        seat.bell.clear()
        own.live("t", "s", delta(seat.topic.live["t", "a"].length, "x"))
        clock.pass_time(0)
        assert seat.bell.rung


async def test_a_hub_that_is_detached_keeps_no_run_waiting(own: Hub, clock: Clock) -> None:
    with load(own, 100):
        turn = asyncio.create_task(own.turn("t"))
        await settle()
        own.detach()
        await turn


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
