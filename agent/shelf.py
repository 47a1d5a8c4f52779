"""What files held before an effect, kept so that a person can take the effect back.

One folder per task, outside every workspace; in it each content once, under its SHA-256. Who writes
to a shelf never fails because of it: what is too large, does not fit any more or cannot be written
is not kept, and that is told. What is read back is what was put there, or nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Of one content: no more than the guard writes back."""
MAX_CALL_BYTES = 64 * 1024 * 1024
"""Of all contents that one call has kept."""

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
        self._grown(len(data))
        return digest

    def get(self, digest: str) -> bytes | None:
        """A content, unless it is gone or not what was put there."""
        try:
            data = (self._folder / digest).read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def scratch(self) -> IO[bytes]:
        """A file beside the contents, without a name: it is gone when it is closed, or its process
        is. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return TemporaryFile(dir=self._folder)

    def tidy(self) -> None:
        """A folder in which nothing is kept goes."""
        with suppress(OSError):  # something is
            self._folder.rmdir()

    def _size(self) -> int:
        if self._used is None:
            self._used = size_of(self._folder)
        return self._used

    def _write(self, digest: str, data: bytes) -> None:
        """Whole or not at all; readable by the server's user alone."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = self._folder / f"{secrets.token_hex(8)}.half"
        fd = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            half.rename(self._folder / digest)
        finally:
            half.unlink(missing_ok=True)


def size_of(folder: Path) -> int:
    """Bytes of the files in it; 0 where there is none."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except FileNotFoundError:
        return 0
