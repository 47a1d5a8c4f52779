"""How often a hub rings and runs read on: at once when it is idle, together under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tasks.hub import Hub, Key
from tasks.hub.pace import LIVE_RINGS_BURST
from tests.streaming.world import settle
from tests.support.hub import delta


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
