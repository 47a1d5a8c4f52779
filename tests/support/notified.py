"""What the kernel says was made in a folder, and what came to it by renaming."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

IN_MOVED_TO, IN_CREATE = 0x80, 0x100
_HEAD = struct.Struct("iIII")


@dataclass
class Seen:
    created: int = 0
    renamed: int = 0


@contextmanager
def watched(folder: Path) -> Iterator[Seen]:
    """Counted when the block ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    seen = Seen()
    try:
        watch = libc.inotify_add_watch(fd, os.fsencode(folder), IN_MOVED_TO | IN_CREATE)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        yield seen
        for mask in _masks(fd):
            seen.created += bool(mask & IN_CREATE)
            seen.renamed += bool(mask & IN_MOVED_TO)
    finally:
        os.close(fd)


def _masks(fd: int) -> Iterator[int]:
    while True:
        try:
            data = os.read(fd, 64 * 1024)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            _, mask, _, size = _HEAD.unpack_from(data, at)
            yield mask
            at += _HEAD.size + size
