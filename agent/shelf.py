"""What files held before an effect, kept so that a person can take the effect back.

One folder per task, outside every workspace; in it each content once, under its SHA-256. Who writes
to a shelf never fails because of it: what is too large, does not fit any more or cannot be written
is not kept, and that is told. What is read back is what was put there, or nothing.

Beside the contents there are a few notes under names of their own, and one scratch file: what an
effect that is not over would need (`agent.tools.unfinished`). They stay when their process dies.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of one content: no more than the guard writes back."""
MAX_CALL_BYTES = 64 * 1024 * 1024
"""Of all contents that one call has kept."""

SCRATCH = "scratch"
DIGITS = 64
"""Of the name of a content."""

logger = logging.getLogger(__name__)


class Shelf:
    """The kept contents of one task. Nobody else writes there at the same time."""

    def __init__(
        self, folder: Path, limit: int, grown: Callable[[int], None] = lambda size: None
    ) -> None:
        self._folder = folder
        self._limit = limit
        """Bytes of the folder."""
        self._grown = grown
        """Told of every content that came to it."""
        self._used: int | None = None
        self._added: list[str] = []

    @property
    def mark(self) -> int:
        """For `take_off`."""
        return len(self._added)

    def put(self, data: bytes) -> str | None:
        """Keep a content; its SHA-256. None: it is too large, or there is no room."""
        digest = hashlib.sha256(data).hexdigest()
        try:
            if (self._folder / digest).exists():
                return digest
            used = self._size() + len(data)
            if len(data) > MAX_FILE_BYTES or used > self._limit:
                return None
            self._write(digest, data)
        except OSError as trouble:
            logger.error("What a file held before a call could not be kept: %s", trouble)
            return None
        self._used = used
        self._added.append(digest)
        self._grown(len(data))
        return digest

    def take_off(self, mark: int) -> None:
        """What came since the mark goes again: nothing names it."""
        for digest in self._added[mark:]:
            self.drop(digest)
        del self._added[mark:]
        self._used = None

    def get(self, digest: str) -> bytes | None:
        """A content, unless it is gone or not what was put there."""
        try:
            data = (self._folder / digest).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def scratch(self) -> IO[bytes]:
        """The scratch file, empty. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        how = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(self._folder / SCRATCH, how, 0o600), "w+b")

    def scratch_left(self) -> IO[bytes]:
        """The scratch file as it was left, to be read. Raises OSError."""
        return (self._folder / SCRATCH).open("rb")

    def leave(self, name: str, note: bytes) -> None:
        """A note in the place of the one of that name."""
        try:
            self._write(name, note)
        except OSError as trouble:
            logger.error("What a call may do could not be noted: %s", trouble)
            self.drop(name)  # the one before is about another call

    def left(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return None

    def drop(self, name: str) -> None:
        """A note, the scratch file or a content."""
        with suppress(OSError):  # there is none
            (self._folder / name).unlink()

    def tidy(self) -> None:
        """A folder in which nothing is kept goes."""
        with suppress(OSError):  # something is
            self._folder.rmdir()

    def _size(self) -> int:
        if self._used is None:
            self._used = size_of(self._folder, contents=True)
        return self._used

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all; readable by the server's user alone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = self._folder / f"{secrets.token_hex(8)}.half"
        fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            half.rename(self._folder / name)
        finally:
            half.unlink(missing_ok=True)


def size_of(folder: Path, *, contents: bool = False) -> int:
    """Bytes of the files in it, or of contents alone; 0 where there is none."""
    try:
        with os.scandir(folder) as entries:
            return sum(
                entry.stat(follow_symlinks=False).st_size
                for entry in entries
                if len(entry.name) == DIGITS or not contents
            )
    except FileNotFoundError:
        return 0
