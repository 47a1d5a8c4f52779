"""The soak of `make soak` in a few seconds: it works, and it would notice."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.benchmarks.chart import sparkline, svg
from tests.benchmarks.soak import ALLOWED, Plan, grown, soak


@pytest.mark.long
@pytest.mark.e2e
async def test_a_mixed_load_for_ten_seconds_leaves_the_server_as_it_was(tmp_path: Path) -> None:
    counts = ("threads", "descriptors", "database connections")
    plan = Plan(seconds=10, runs=20, followers=60, answer_seconds=1, stay_seconds=4, watched=counts)
    soaked = await soak(plan, tmp_path)
    assert not soaked.problems
    assert {"speak", "write", "cancel", "follower", "slow reader"} <= soaked.done.keys()


def samples(**last: float) -> list[dict[str, float]]:
    start = {"memory, MiB": 100.0, "threads": 20.0, "descriptors": 600.0}
    start |= {"database connections": 9.0, "loop lag, ms": 20.0}
    named = {name: value for name in start for key, value in last.items() if name.startswith(key)}
    end = start | named
    return [
        {name: start[name] + (end[name] - start[name]) * n / 99 for name in start}
        for n in range(100)
    ]


@pytest.mark.parametrize(
    "last",
    [{"memory": 160}, {"threads": 60}, {"descriptors": 1_200}, {"database": 20}, {"loop": 300}],
)
def test_what_grows_is_named(last: dict[str, float]) -> None:
    [problem] = grown(samples(**last), ALLOWED)
    assert problem.startswith(next(iter(last)))


def test_what_is_flat_is_not() -> None:
    assert grown(samples(), ALLOWED) == []


def test_a_chart_is_a_picture() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    drawn = ElementTree.fromstring(svg({"memory": [1, 2, 3], "threads": [5, 5, 5]}, "soak"))
    assert len(drawn.findall("{*}polyline")) == 2
