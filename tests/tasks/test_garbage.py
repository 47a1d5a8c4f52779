"""How often the collector stops everything: counted in a process of its own, for it is set for good."""

from __future__ import annotations

import subprocess
import sys

CHURN = """
import gc
from tasks import garbage
garbage.calm()
before = [seen["collections"] for seen in gc.get_stats()]
kept = [[] for _ in range(300_000)]
print(*(seen["collections"] - b for seen, b in zip(gc.get_stats(), before)))
"""


def test_three_hundred_thousand_new_objects_are_not_looked_through_as_a_whole() -> None:
    ran = subprocess.run([sys.executable, "-c", CHURN], capture_output=True, check=True, text=True)
    young, middle, whole = map(int, ran.stdout.split())
    assert whole == 0
    assert 0 < young + middle < 50
