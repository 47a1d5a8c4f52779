"""What py-spy saw, counted by thread and by part."""

from __future__ import annotations

from tests.benchmarks.shares import ELSE, looks, part_of, table, thread_of

LOOP = (
    "thread (1): MainThread;main (config/serve.py:29);AsyncioSelectorReactor.run (twisted/x.py:1)"
)
RAW = f"""{LOOP};read (agent/providers/reading.py:9);loads (json/decoder.py:3) 5
{LOOP};_run (streaming/asgi/exchanges.py:67);send (daphne/server.py:2) 2
{LOOP};_run (streaming/asgi/exchanges.py:67);tell (tasks/hub/pace.py:4) 1
{LOOP};step (asyncio/events.py:80) 1
thread (2): tasks.writer;run (/srv/env/lib/site-packages/django/db/models/base.py:1);at (tasks/driver.py:2) 1
"""


def test_a_look_belongs_to_the_innermost_part() -> None:
    parts = [part_of(stack) for stack, _ in looks(RAW)]
    assert parts == [
        "asking the model: request, socket, reply",
        "the server: shims, Daphne, Twisted",
        "followers: hub, frames, streams",
        ELSE,
        "statements: driver, values, rows",
    ]
    assert [thread_of(stack) for stack, _ in looks(RAW)] == [*["event loop"] * 4, "writer"]


def test_libraries_are_known_wherever_they_lie() -> None:
    (last,) = [stack[:-1] for stack, _ in looks(RAW) if "writer" in stack[0]]
    assert part_of(last) == "requests: API, access, Django, ninja"


def test_shares_are_of_all_looks() -> None:
    rows = table(looks(RAW)).splitlines()
    assert rows[2] == "| all | 90 % | 10 % | 0 % | 0 % |"
    assert "| asking the model: request, socket, reply | 50 % | 0 % | 0 % | 0 % |" in rows
