"""How often a hub rings and runs read on: at once when it is idle, together under load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import pytest

from tasks.hub import Hub, Key
from tasks.hub.pace import BUSY, BUSY_WITH_FEW, MANY
from tests.streaming.world import settle
from tests.support.hub import delta


class Clock:
    """The part of a loop that pacing needs, with the time in our hands, and the processor's."""

    def __init__(self) -> None:
        self.now = 100.0
        self.used = 0.0
        """Processor time of the loop's thread."""
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.used

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Timer:
        timer = Timer(self.now + delay, partial(callback, *args))
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float, busy: float = 0.0) -> None:
        """`busy` for so much of it."""
        self.now += seconds
        self.used += busy * seconds
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


def write(
    own: Hub, clock: Clock, deltas: int, seconds: float, *, busy: float, start: int = 0
) -> int:
    """How often one follower was woken while so many deltas came in so much time, of which the loop
    was busy for a part."""
    rings = 0
    with own.listen(Key("task", "t")) as seat:
        for number in range(start, start + deltas):
            own.live("t", "s", delta(number, "x"))
            rings += seat.bell.rung
            seat.bell.clear()
            clock.pass_time(seconds / deltas, busy)
            rings += seat.bell.rung
            seat.bell.clear()
        clock.pass_time(1)
        rings += seat.bell.rung
    return rings


@pytest.fixture
def clock(own: Hub) -> Clock:
    clock = Clock()
    own.attach(clock, 0.04, cpu=clock.cpu)  # type: ignore[arg-type]
    return clock


def others(own: Hub, runs: int) -> None:
    """So many runs are active in all."""
    for number in range(1, runs):
        own.running(f"t{number}", f"s{number}", 0, 0)


CROWDS = [(1, BUSY_WITH_FEW), (MANY - 1, BUSY_WITH_FEW), (MANY, BUSY)]
"""How many runs are active, and how busy the loop may be then."""


@pytest.mark.parametrize(("runs", "most"), CROWDS)
def test_while_the_loop_has_time_a_hub_rings_for_every_delta(
    own: Hub, clock: Clock, runs: int, most: float
) -> None:
    others(own, runs)
    assert write(own, clock, 10_000, 1.0, busy=0.9 * most) == 10_000


def test_runs_that_were_active_before_the_loop_came_count(own: Hub) -> None:
    others(own, MANY)
    clock = Clock()
    own.attach(clock, 0.04, cpu=clock.cpu)  # type: ignore[arg-type]
    assert write(own, clock, 1_000, 1.0, busy=0.9 * BUSY_WITH_FEW) < 500


def test_when_others_have_ended_few_runs_are_left(own: Hub, clock: Clock) -> None:
    others(own, MANY)
    own.idle("t1")
    assert write(own, clock, 1_000, 1.0, busy=0.9 * BUSY_WITH_FEW) == 1_000


def test_under_load_deltas_are_gathered(own: Hub, clock: Clock) -> None:
    write(own, clock, 10_000, 1.0, busy=1.0)
    assert 25 <= write(own, clock, 10_000, 1.0, busy=1.0, start=10_000) <= 60


def test_what_was_gathered_is_rung_for_within_the_longest_beat(own: Hub, clock: Clock) -> None:
    with load(own, clock) as seats:
        seat = seats.enter_context(own.listen(Key("task", "t")))
        own.live("t", "s", delta(seat.topic.live["t", "a"].length, "x"))
        assert not seat.bell.rung
        clock.pass_time(0.04)
        assert seat.bell.rung


@pytest.mark.parametrize(("runs", "most"), CROWDS)
@pytest.mark.parametrize("rings_a_second", [200, 100, 40])
def test_beats_get_as_long_as_it_takes_to_leave_the_loop_some_time(
    own: Hub, clock: Clock, rings_a_second: int, runs: int, most: float
) -> None:
    """A delta every millisecond, whose followers can be woken so often in the time there is."""
    others(own, runs)
    cost = most / rings_a_second
    with own.listen(Key("task", "t")) as seat:
        heard = []
        for number in range(6_000):
            own.live("t", "s", delta(number, "x"))
            clock.pass_time(0.001)
            if seat.bell.rung:
                seat.bell.clear()
                heard.append(clock.now)
                clock.used += cost
    settled = sum(when > clock.now - 3 for when in heard) / 3
    assert 0.75 * rings_a_second <= settled <= 1.25 * rings_a_second


def test_the_first_delta_of_a_block_never_waits(own: Hub, clock: Clock) -> None:
    with (
        load(own, clock),
        own.listen(Key("session", "s")) as other,
        own.listen(Key("task", "t")) as seat,
    ):
        heard = []
        for next_ in (delta(seat.topic.live["t", "a"].length, "x"), delta(0, "x", "b")):
            seat.bell.clear()
            own.live("t", "s", next_)
            heard.append(seat.bell.rung)
        assert heard == [False, True]
        assert other.bell.rung


def test_after_load_the_hub_is_idle_again(own: Hub, clock: Clock) -> None:
    write(own, clock, 10_000, 1.0, busy=1.0)
    assert write(own, clock, 50, 1.0, busy=0.1, start=10_000) == 50


def test_a_hub_that_is_detached_rings_no_more(own: Hub, clock: Clock) -> None:
    with load(own, clock) as seats:
        seat = seats.enter_context(own.listen(Key("task", "t")))
        length = seat.topic.live["t", "a"].length
        own.live("t", "s", delta(length, "x"))
        own.detach()
        clock.pass_time(1)
        assert not seat.bell.rung
        own.live("t", "s", delta(length + 1, "x"))
        assert seat.bell.rung


# ── how often runs read on ────────────────────────────────────────────────────────────────────


def load(own: Hub, clock: Clock) -> ExitStack:
    """A hub that gathers, with a follower; the last delta was just rung for."""
    seats = ExitStack()
    seats.enter_context(own.listen(Key("task", "t")))
    for number in range(1_000):
        own.live("t", "s", delta(number, "x"))
        clock.pass_time(0.001, busy=1.0)
    while clock.timers:
        clock.pass_time(clock.timers[0].when - clock.now)
    return seats


async def test_a_run_reads_on_at_once_while_there_is_little_to_do(own: Hub, clock: Clock) -> None:
    with own.listen(Key("task", "t")) as seat:
        for number in range(10):
            seat.bell.clear()
            own.live("t", "s", delta(number, "x"))
            assert own.turn("t") is None
            assert seat.bell.rung
    assert not clock.timers


async def test_under_load_runs_read_on_together_and_what_they_read_is_shown_at_once(
    own: Hub, clock: Clock
) -> None:
    own.running("other", "s", 0, 0)
    with load(own, clock), own.listen(Key("task", "t")) as seat:
        turns = [own.turn(run) for run in ("t", "other")]
        await settle()
        assert not any(turn is None or turn.done() for turn in turns)
        clock.pass_time(0.04)
        assert all(turn is not None and turn.done() for turn in turns)
        seat.bell.clear()
        own.live("t", "s", delta(seat.topic.live["t", "a"].length, "x"))
        assert seat.bell.rung


async def test_who_rests_long_after_the_others_reads_on_after_them(own: Hub, clock: Clock) -> None:
    """Runs that rest at different times are woken in parts, none more than a beat after its rest."""
    others(own, 8)
    with load(own, clock):
        rests = []
        for number in range(8):
            clock.pass_time(0.005, busy=1.0)
            rests.append((clock.now, own.turn(f"t{number}" if number else "t")))
        woken: dict[int, float] = {}
        while len(woken) < 8:
            clock.pass_time(0.001, busy=1.0)
            for number, (_, rest) in enumerate(rests):
                assert rest is not None
                if rest.done():
                    woken.setdefault(number, clock.now)
        assert 3 <= len(set(woken.values())) <= 4
        for number, (began, _) in enumerate(rests):
            assert 0.029 < woken[number] - began < 0.042


async def test_a_run_that_is_cancelled_in_its_rest_keeps_the_others_from_nothing(
    own: Hub, clock: Clock
) -> None:
    own.running("other", "s", 0, 0)
    with load(own, clock):
        gone, other = own.turn("t"), own.turn("other")
        assert gone is not None
        assert other is not None
        gone.cancel()
        clock.pass_time(0.04)
        assert other.done()


def test_what_comes_after_a_pause_does_not_wait_for_the_beat_after_it(
    own: Hub, clock: Clock
) -> None:
    with load(own, clock), own.listen(Key("task", "t")) as seat:
        clock.pass_time(0.04, busy=1.0)
        seat.bell.clear()
        own.live("t", "s", delta(seat.topic.live["t", "a"].length, "x"))
        assert not seat.bell.rung
        clock.pass_time(0)
        assert seat.bell.rung


async def test_a_hub_that_is_detached_keeps_no_run_waiting(own: Hub, clock: Clock) -> None:
    with load(own, clock):
        turn = own.turn("t")
        assert turn is not None
        own.detach()
        await turn
