"""Somebody swaps a directory for a link as fast as he can: nothing outside is read or written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent import beneath
from agent.beneath import Opener, by_kernel, by_steps
from agent.errors import PathRefused
from agent.workspace import Workspace

SWAPPER = """
import itertools, os, shutil, sys
root, outside = sys.argv[1:]
for turn in itertools.count():
    if turn == 1:
        print("ready", flush=True)
    for target in ("real", outside, "../ws.outside"):   # a link in the place of a link
        os.symlink(target, root + "/race.tmp")
        os.replace(root + "/race.tmp", root + "/race")
    # and a link in the place of a real directory
    os.rename(root + "/plain", root + "/aside")
    try:
        os.symlink(outside, root + "/plain")
        os.unlink(root + "/plain")
    except FileExistsError:
        pass   # a write made its parent anew
    while os.path.exists(root + "/aside"):
        try:
            os.rename(root + "/aside", root + "/plain")
        except OSError:
            shutil.rmtree(root + "/plain", ignore_errors=True)
"""


@pytest.fixture
def arena(tmp_path):
    root, outside = tmp_path / "ws", tmp_path / "ws.outside"
    for directory in (root / "real", root / "plain", outside):
        directory.mkdir(parents=True)
    (root / "real/x").write_text("IN")
    (root / "plain/x").write_text("IN")
    (outside / "x").write_text("OUT")
    (outside / "secret").write_text("OUT")
    swapper = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(root), str(outside)], stdout=subprocess.PIPE
    )
    assert swapper.stdout is not None
    swapper.stdout.readline()
    yield root, outside
    alive = swapper.poll() is None
    swapper.kill()
    swapper.communicate()
    assert alive, "the swapper gave up"


def read(workspace: Workspace, path: str, turn: int) -> bool:
    data = workspace.read_bytes(path, 100)
    assert data.startswith(b"IN"), data
    return True


def look_around(workspace: Workspace, path: str, turn: int) -> bool:
    found = workspace.list_dir(path.removesuffix("/x"))
    assert not [entry for entry in found if entry.path.endswith("secret")]
    return False


def write(workspace: Workspace, path: str, turn: int) -> bool:
    workspace.write_atomic(path, f"IN {turn}".encode())
    return True


def race(arena: tuple[Path, Path], opener: Opener, turns: int) -> int:
    root, outside = arena
    workspace = Workspace(root, opener)
    inside = 0
    for turn in range(turns):
        for act in (read, look_around, write):
            for path in ("race/x", "plain/x"):
                try:
                    inside += act(workspace, path, turn)
                except (PathRefused, OSError):
                    continue
    assert {file.name: file.read_text() for file in outside.iterdir()} == {
        "x": "OUT",
        "secret": "OUT",
    }
    return inside


@pytest.mark.parametrize("opener", [by_kernel, by_steps], ids=["kernel", "steps"])
def test_swapping_a_directory_for_a_link_gains_nothing(arena, opener):
    if not beneath.works(opener):
        pytest.skip("this kernel has no openat2")
    assert race(arena, opener, 600)


@pytest.mark.long
@pytest.mark.parametrize("opener", [by_kernel, by_steps], ids=["kernel", "steps"])
def test_ten_thousand_turns_gain_nothing(arena, opener):
    if not beneath.works(opener):
        pytest.skip("this kernel has no openat2")
    assert race(arena, opener, 10_000)
