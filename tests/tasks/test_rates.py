"""How often: a minute's worth at once, then evenly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.test import Client

from tasks import rates
from tasks.counters import InMemory
from tasks.errors import TooMany
from tests.support.people import bearer
from tests.support.rows import make_user, make_workspace


def count(memory: InMemory, who: str = "alice", per_minute: int = 6) -> int:
    """How many go through now."""
    for number in range(1000):
        try:
            rates.take(memory, "tasks", who, per_minute)
        except TooMany:
            return number
    return 1000


def test_a_minute_s_worth_at_once_then_evenly(clock):
    memory = InMemory(clock)
    assert count(memory) == 6
    clock.now += 9
    assert count(memory) == 0
    clock.now += 1.5
    assert count(memory) == 1
    assert count(memory, "bob") == 6
    clock.now += 3600
    assert count(memory) == 6


def test_the_refusal_says_when(clock):
    memory = InMemory(clock)
    assert count(memory) == 6
    clock.now += 2.5
    with pytest.raises(TooMany) as refused:
        rates.take(memory, "tasks", "alice", 6)
    assert (refused.value.code, refused.value.retry_after) == ("rate_limited", 8)


def test_no_limit_is_no_bucket(clock):
    assert count(InMemory(clock), per_minute=0) == 1000


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("nothing_counted")
def test_too_many_tasks_in_a_minute_are_429(settings):
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, max_tasks_per_minute=2)
    alice = make_user("alice")
    make_workspace(alice)
    client, headers = Client(headers=bearer(alice)), bearer(make_user("bob"))
    answers = [client.post("/api/tasks", {"goal": "x"}, "application/json") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[-1].json()["error"]["code"] == "rate_limited"
    assert 0 < int(answers[-1]["Retry-After"]) <= 30
    other = Client(headers=headers).post("/api/tasks", {"goal": "x"}, "application/json")
    assert other.status_code == 400, "bob has no workspace, but time"
