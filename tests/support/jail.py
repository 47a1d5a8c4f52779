"""A hostile workspace, with every trap in it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from agent.beneath import Opener
from agent.workspace import Entry, Workspace


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_jail(place: Path, opener: Opener) -> Workspace:
    """In `ws`; beside it lies what must not be reached."""
    root = place / "ws"
    outside = place / "ws.outside"
    for directory in (root / "sub/dir", outside, place / "ws-evil"):
        directory.mkdir(parents=True)
    (root / "a.txt").write_text("AAA\n")
    (root / "sub/dir/a.txt").write_text("BBB\n")
    (place / "ws-evil/x").write_text("EVIL\n")
    (outside / "x").write_text("OUT\n")
    (outside / "hard").write_text("HARD\n")
    links = {
        "in_link.txt": "a.txt",
        "in_dir": "sub/dir",
        "out_link": str(outside),
        "out_file_link": str(outside / "x"),
        "out_relative": "../ws.outside/x",
        "dangling_link": str(outside / "not_yet"),
        "dangling_inside": "not_yet",
        "dangling_dir": "not_yet/deep",
        "sub/parent_link": "..",
        "sub/up2": "../..",
        "sub/back": "../a.txt",
        "loop_link": "loop_link",
        "zero_link": "/dev/zero",
        "long_link": "y" * 300,
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.link(outside / "hard", root / "hard_link")
    os.mkfifo(root / "fifo")
    return Workspace(root, opener)


def read(jail: Workspace, path: str) -> bytes:
    return jail.read_bytes(path, 1_000_000)


def listed(workspace: Workspace, path: str = ".") -> tuple[Entry, ...]:
    """What one directory holds, by name."""
    return workspace.walk(path, max_depth=1, max_entries=1000).entries
