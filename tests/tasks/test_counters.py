"""What is counted in this process; in Redis it is the same (tests/scale/test_counters.py)."""

from __future__ import annotations

from tasks.counters import MAX_NAMES, InMemory


def test_a_tally_is_forgotten_so_long_after_its_first(clock):
    memory = InMemory(clock)
    memory.tally("alice", 60)
    clock.now += 59
    memory.tally("alice", 60)
    assert memory.tallies(["alice", "bob"]) == [2, 0]
    for _ in range(3):
        memory.give_back("alice")
        memory.give_back("bob")
    assert memory.tallies(["alice", "bob"]) == [0, 0]
    assert [memory.tally("alice", 60) for _ in range(2)] == [1, 2]
    clock.now += 1
    assert memory.tallies(["alice"]) == [0]
    memory.tally("alice", 60)
    assert memory.tallies(["alice"]) == [1]


def test_what_is_forgiven_is_forgotten(clock):
    memory = InMemory(clock)
    memory.tally("alice", 60)
    memory.forget("alice")
    memory.forget("bob")
    assert memory.tallies(["alice", "bob"]) == [0, 0]


def test_memory_is_bounded(clock):
    memory = InMemory(clock)
    for number in range(MAX_NAMES + 100):
        memory.draw(str(number), 6, 0.1)
        memory.tally(str(number), 60)
    assert len(memory._buckets) == len(memory._tallies) == MAX_NAMES
    assert memory.tallies(["0", str(MAX_NAMES)]) == [0, 1]
