"""Brakes that all processes share, on a real Redis, and what becomes of them while it is away."""

from __future__ import annotations

import asyncio

import pytest

from tasks.counters import Counters, InMemory, InRedis
from tests.support.scaled import ScaledHouse, guess
from tests.support.services import Redis
from tests.support.waiting import happened

PREFIX = "pilothouse:https://pilothouse.example.org"


@pytest.fixture(params=["memory", "redis"])
def some(request: pytest.FixtureRequest, redis: Redis) -> Counters:
    return InMemory() if request.param == "memory" else InRedis(redis.url, PREFIX)


async def test_both_kinds_count_alike(some: Counters) -> None:
    assert [some.draw("alice", 2, 0.001) for _ in range(2)] == [0, 0]
    assert 0 < some.draw("alice", 2, 0.001) <= 1000
    assert some.draw("bob", 2, 0.001) == 0
    assert [some.draw("quick", 1, 20) == 0 for _ in range(2)] == [True, False]
    await happened(lambda: some.draw("quick", 1, 20) == 0)
    for _ in range(3):
        some.tally("alice", 1000)
    some.tally("gone", 0)
    some.tally("back", 1000)
    for _ in range(3):
        some.give_back("back")
    assert some.tally("back", 1000) == 1
    some.tally("soon", 0.05)
    assert some.tallies(["alice", "bob", "gone"]) == [3, 0, 0]
    await happened(lambda: some.tallies(["soon"]) == [0])
    some.forget("alice")
    assert some.tallies(["alice"]) == [0]


def test_processes_count_together_and_installations_apart(redis: Redis) -> None:
    one, two = (InRedis(redis.url, PREFIX) for _ in range(2))
    other = InRedis(redis.url, "pilothouse:https://other.example.org")
    one.tally("together", 1000)
    two.tally("together", 1000)
    assert [each.tallies(["together"]) for each in (one, two, other)] == [[2], [2], [0]]
    assert [each.draw("together", 1, 0.001) == 0 for each in (one, two, other)] == [
        *(True, False, True)
    ]


async def test_while_redis_is_away_each_counts_for_itself(redis: Redis) -> None:
    some = InRedis(redis.url, PREFIX)
    some.tally("before", 1000)
    await asyncio.to_thread(redis.stop)
    try:
        assert [some.draw("away", 1, 0.001) == 0 for _ in range(2)] == [True, False]
        some.tally("away", 1000)
        assert some.tallies(["away"]) == [1]
        some.forget("away")
        assert some.tallies(["away"]) == [0]
    finally:
        await asyncio.to_thread(redis.start)
    some._away_until = 0
    some.tally("after", 1000)
    assert InRedis(redis.url, PREFIX).tallies(["after"]) == [1]


async def test_wrong_passwords_are_counted_by_all_web_processes_together(
    house: ScaledHouse,
) -> None:
    one, two = (house.person_at("", web.url) for web in house.server.webs)
    async with one as here, two as there:
        answers = [await guess(somebody) for somebody in (here, there, here)]
    assert answers == [200, 200, 429]
