"""What files hold before a command, until it is known which of them it changes.

One file beside the contents of the shelf: contents one behind the other, their places in memory. So
a workspace of thousands of files costs no file each, and only what changed comes to the shelf. After
a crash it can be opened again with the places that were noted. Like the shelf it never fails its
writer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, NamedTuple

from agent.shelf import MAX_CALL_BYTES, MAX_FILE_BYTES, SCRATCH, Shelf

logger = logging.getLogger(__name__)


class Place(NamedTuple):
    """Of a content in the file."""

    offset: int
    size: int


class Spool:
    """For one command. Opens its file with the first content; whoever made it closes it."""

    def __init__(self, shelf: Shelf, limit: int = MAX_CALL_BYTES) -> None:
        self.shelf = shelf
        """Where what changed goes."""
        self._limit = limit
        """Bytes of all contents."""
        self._places: dict[str, Place] = {}
        """By SHA-256."""
        self._end = 0
        self._file: IO[bytes] | None = None
        self._closed = False
        self._using = threading.Lock()  # a look that was cancelled goes on in its thread

    @classmethod
    def left(cls, shelf: Shelf, places: Mapping[str, Place]) -> Spool:
        """What another one held when its process died. It holds nothing more."""
        spool = cls(shelf)
        spool._closed = True
        try:
            spool._file = shelf.scratch_left()
        except OSError as trouble:
            logger.error("What files held before a command is lost: %s", trouble)
            return spool
        spool._places = dict(places)
        return spool

    def places(self) -> dict[str, Place]:
        """Of all contents, which are in the file now."""
        with self._using:
            try:
                if self._file is not None:
                    self._file.flush()
            except OSError as trouble:
                logger.error("What files hold before a command cannot be kept: %s", trouble)
                self._give_up()
            return dict(self._places)

    def read(self, sha256: str) -> bytes | None:
        with self._using:
            return self._read(sha256)

    def keep(self, sha256: str, data: bytes) -> None:
        """Hold a content, unless it is too large, there is no room, or it is over."""
        with self._using:
            fits = len(data) <= MAX_FILE_BYTES and self._end + len(data) <= self._limit
            if self._closed or not fits or sha256 in self._places:
                return
            try:
                if self._file is None:
                    self._file = self.shelf.scratch()
                self._file.write(data)
            except OSError as trouble:
                logger.error("What files hold before a command cannot be kept: %s", trouble)
                self._give_up()
                return
            self._places[sha256] = Place(self._end, len(data))
            self._end += len(data)

    def shelve(self, sha256: str) -> bool:
        """Put a content on the shelf; whether it is there."""
        data = self.read(sha256)
        return data is not None and self.shelf.put(data) == sha256

    def close(self) -> None:
        """Nothing of it is left but what was shelved. What another thread is writing is waited
        for; what it would write later is not."""
        self.leave()
        self.shelf.drop(SCRATCH)
        self.shelf.tidy()

    def leave(self) -> None:
        """The file stays, for whoever opens it again."""
        with self._using:
            self._give_up()

    def _read(self, sha256: str) -> bytes | None:
        place = self._places.get(sha256)
        if place is None or self._file is None:
            return None
        try:
            self._file.seek(place.offset)
            data = self._file.read(place.size)
            if not self._closed:
                self._file.seek(self._end)  # where the next content goes
        except OSError as trouble:
            logger.error("What a file held before a command is lost: %s", trouble)
            return None
        return data

    def _give_up(self) -> None:
        """Where a content ends is not known any more once a write has failed."""
        self._closed = True
        self._places.clear()
        if self._file is not None:
            with suppress(OSError):  # the rest of what did not fit
                self._file.close()
            self._file = None
