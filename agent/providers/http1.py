"""Responses of HTTP/1.1 from bytes: pure, incremental, bounded.

1. Any cutting of the same bytes gives the same response; a body comes as soon as it is there.
2. A body ends where RFC 9112 says: at once without one, by chunks, by its length, or with the
   connection. One that ends earlier is `Broken`, and so is what is not HTTP.
3. As lenient as servers need it: a lone LF ends a line, chunk extensions and trailers are skipped,
   interim responses (100, 103) too. A length that is unclear is refused, never guessed.
"""

from __future__ import annotations

import re

MAX_HEAD_BYTES = 64 * 1024
"""Of a head, of the trailers, and of the line before a chunk."""

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/1\.([01]) +([1-5]\d\d)(?: .*)?", re.DOTALL)
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?")
_LENGTH = re.compile(r"\d{1,18}")
_NO_BODY = frozenset({204, 304})


class Broken(ConnectionError):
    """What came is no response, or ended in the middle of one."""


class ResponseParser:
    """Feed it reads of one connection, from the first byte of a response on."""

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is here."""
        self.headers: dict[str, str] = {}
        """Names in lower case; of several values the first."""
        self.pieces: list[bytes] = []
        """The body that was not taken yet; whoever takes it clears the list."""
        self.complete = False
        self.reusable = False
        """Whether the connection may carry another request, once this is complete."""
        self._rest = b""
        """The beginning of a line that is not complete."""
        self._left = 0
        """Bytes to come of the chunk, or of the whole body."""
        self._chunked = self._until_close = self._in_trailers = False

    def feed(self, read: bytes) -> None:
        """Take what was read. Raises Broken."""
        data = self._rest + read if self._rest else read
        self._rest = b""
        while not self.status and data:
            data = self._head(data)
        if not self.status:
            return
        if self.complete:
            self.reusable = self.reusable and not data  # nobody asked for that
        elif self._chunked:
            self._chunks(data)
        elif self._until_close:
            self._take(data)
        else:
            self._counted(data)

    def eof(self) -> None:
        """The connection ended. Raises Broken when the response had not."""
        self.reusable = False
        if not (self.complete or self._until_close):
            raise Broken
        self.complete = True

    # ── the head ──────────────────────────────────────────────────────────────────────────────

    def _head(self, data: bytes) -> bytes:
        """Read a head, if all of it is here: what is behind it."""
        data = data.lstrip(b"\r\n")
        end = _HEAD_END.search(data)
        if end is None or end.start() > MAX_HEAD_BYTES:
            if len(data) > MAX_HEAD_BYTES or not data.startswith(b"HTTP/1."[: len(data)]):
                raise Broken
            self._rest = data
            return b""
        first, *lines = data[: end.start()].split(b"\n")
        found = _STATUS.fullmatch(first.rstrip(b"\r"))
        if found is None or found[2] == b"101":
            raise Broken
        self.headers = _fields(lines)
        if found[2][:1] != b"1":
            self.status = int(found[2])
            self._frame(newer=found[1] == b"1")
        return data[end.end() :]

    def _frame(self, *, newer: bool) -> None:
        """How the body ends, and whether anything may follow it."""
        connection = self.headers.get("connection", "").lower()
        self.reusable = "close" not in connection if newer else "keep-alive" in connection
        coding = self.headers.get("transfer-encoding", "").strip().lower()
        length = self.headers.get("content-length", "").strip()
        if self.status in _NO_BODY:
            self.complete = True
        elif coding not in ("", "identity"):
            if coding != "chunked":
                raise Broken
            self._chunked = True
            self.reusable = self.reusable and not length
        elif length:
            if not _LENGTH.fullmatch(length):
                raise Broken
            self._left = int(length)
            self.complete = not self._left
        else:
            self._until_close, self.reusable = True, False

    # ── the body ──────────────────────────────────────────────────────────────────────────────

    def _take(self, data: bytes) -> None:
        if data:
            self.pieces.append(data)

    def _counted(self, data: bytes) -> None:
        self._take(data[: self._left])
        extra = len(data) > self._left
        self._left = max(0, self._left - len(data))
        self.complete = not self._left
        self.reusable = self.reusable and not extra

    def _chunks(self, data: bytes) -> None:
        """A loop without calls of its own: a word of a model is a chunk."""
        at, size, left, pieces = 0, len(data), self._left, self.pieces
        while at < size and not self._in_trailers:
            if left:
                piece = data[at : at + left]
                pieces.append(piece)
                at, left = at + len(piece), left - len(piece)
                continue
            end = data.find(b"\n", at)
            if end < 0:
                break
            line = data[at:end].rstrip(b"\r")
            at = end + 1
            if line:  # an empty one ends the chunk before
                found = _CHUNK_SIZE.fullmatch(line)
                if found is None:
                    raise Broken
                left = int(found[1], 16)
                self._in_trailers = not left
        self._left = left
        self._rest = data[at:]
        if self._in_trailers:
            self._trailers()
        elif len(self._rest) > MAX_HEAD_BYTES:
            raise Broken

    def _trailers(self) -> None:
        """Everything up to an empty line; it says nothing that we need."""
        end = re.search(rb"(?:^|\n)\r?\n", self._rest)
        if end is not None:
            self.complete = True
            self.reusable = self.reusable and end.end() == len(self._rest)
            self._rest = b""
        elif len(self._rest) > MAX_HEAD_BYTES:
            raise Broken


def _fields(lines: list[bytes]) -> dict[str, str]:
    """Header lines as names and values. Raises Broken, also for two lengths that differ."""
    fields: dict[str, str] = {}
    name = ""
    for line in lines:
        text = line.decode("latin-1").rstrip("\r")
        if text[:1] in (" ", "\t") and name:  # an old way to go on with a value
            fields[name] += " " + text.strip()
            continue
        key, colon, value = text.partition(":")
        if not colon or not _FIELD_NAME.fullmatch(key):
            raise Broken
        name, value = key.lower(), value.strip()
        if name == "content-length" and fields.get(name, value) != value:
            raise Broken
        fields.setdefault(name, value)
    return fields
