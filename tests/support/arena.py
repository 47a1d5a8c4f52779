"""Somebody who swaps links and folders of a workspace as fast as he can."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TURNS = 100
SWAPPER = f"""
import itertools, os, shutil, sys
root, plain, instead, *targets = sys.argv[1:]
plain = root + "/" + plain
for turn in itertools.count():
    if turn % {TURNS} == 1:
        print(flush=True)
    for target in targets:   # a link in the place of a link
        os.symlink(target, root + "/race.tmp")
        os.replace(root + "/race.tmp", root + "/race")
    # and a link in the place of a real directory
    os.rename(plain, root + "/aside")
    try:
        os.symlink(instead, plain)
        os.unlink(plain)
    except FileExistsError:
        pass   # a write made its parent anew
    while os.path.exists(root + "/aside"):
        try:
            os.rename(root + "/aside", plain)
        except OSError:
            shutil.rmtree(plain, ignore_errors=True)
"""


@dataclass(frozen=True)
class Arena:
    root: Path
    _lines: IO[bytes]
    _swaps_in_a_line: int

    def swapped(self) -> int:
        """Swaps that were counted since the last time somebody asked."""
        lines = 0
        while select.select([self._lines], [], [], 0)[0]:
            assert self._lines.readline()
            lines += 1
        return lines * self._swaps_in_a_line


@contextmanager
def swapping(root: Path, *targets: str, plain: str, instead: str) -> Iterator[Arena]:
    """`race` is a link to the `targets` in turn, and the folder `plain` at times one to
    `instead`."""
    command = [sys.executable, "-c", SWAPPER, str(root), plain, instead, *targets]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as swapper:
        assert swapper.stdout is not None
        swapper.stdout.readline()
        try:
            yield Arena(root, swapper.stdout, TURNS * (len(targets) + 1))
            assert swapper.poll() is None, "the swapper gave up"
        finally:
            swapper.kill()
