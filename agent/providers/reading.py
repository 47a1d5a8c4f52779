"""A response body of any kind into the assembler: SSE, a JSON document, JSON lines, a web page.

What it is shows in its first character, so a wrong content type does no harm. Bounded. Pure.
"""

from __future__ import annotations

import msgspec

from agent.errors import ProviderRefused
from agent.events import Delta
from agent.providers.assembler import HEAD_BYTES, Assembler
from agent.providers.failures import failure_of, is_error, readable
from agent.providers.sse import SSEParser

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_DOCUMENT_BYTES = 16 * 1024 * 1024
LONG_BYTES = 4 * 1024
"""Of a read that holds many events."""
FEW = 8
_BOM = b"\xef\xbb\xbf"


class BodyReader:
    """Feed it network reads; deltas come out as soon as the kind of body allows."""

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler
        self._parser: SSEParser | None = None
        self._document = bytearray()
        """What cannot be read before its end, and what came before the first character."""
        self._size = 0

    def feed(self, read: bytes) -> list[Delta]:
        self._size += len(read)
        if self._size > MAX_BODY_BYTES:
            raise _too_large()
        if self._parser is not None:
            if self._size - len(read) < HEAD_BYTES:
                self._assembler.begins(read)
            return self._events(self._parser, read)
        self._document += read
        if len(self._document) > MAX_DOCUMENT_BYTES:
            raise _too_large()
        head = bytes(self._document[:64])
        first = head.removeprefix(_BOM).lstrip()[:1]
        if _BOM.startswith(head) or first in (b"", b"{", b"[", b"<"):
            return []
        self._assembler.begins(bytes(self._document))
        self._parser = SSEParser()
        return self._events(self._parser, bytes(self._document))

    def _events(self, parser: SSEParser, read: bytes) -> list[Delta]:
        """Those that are alike need not be parsed, and a few show what they are like."""
        rest = self._assembler.take_alike(read) if parser.between else read
        if len(rest) == len(read) > LONG_BYTES:
            few = _size_of(FEW, read)
            self._assembler.take(parser.feed(read[:few]))
            rest = read[few:]
            rest = self._assembler.take_alike(rest) if parser.between else rest
        return self._assembler.feed(parser.feed(rest) if rest else ())

    def close(self) -> list[Delta]:
        if self._parser is not None:
            rest = self._parser.close()
            return self._assembler.feed(rest) if rest else []
        body = bytes(self._document).removeprefix(_BOM).strip()
        return self._read_document(body) if body else []

    def _read_document(self, body: bytes) -> list[Delta]:
        said, value = readable(body)
        if is_error(value):
            raise failure_of(value)
        if isinstance(value, dict):
            self._assembler.begins(body)
            return self._assembler.feed_body(value)
        if isinstance(value, list):
            return self._assembler.feed(msgspec.json.encode(item) for item in value)
        if body[:1] == b"<":
            raise ProviderRefused(
                f"The model's server sent {said}",
                code="provider_bad_reply",
                hint="Check the base URL (usually it ends in /v1) and any proxy in between.",
            )
        return self._assembler.feed(_lines(body))


def _size_of(events: int, read: bytes) -> int:
    """So many at its beginning, or all."""
    size = 0
    for _ in range(events):
        size = read.find(b"\n\n", size) + 2
        if size == 1:
            return len(read)
    return size


def _lines(body: bytes) -> list[bytes]:
    """JSON lines, perhaps with SSE between them."""
    lines = (line.strip().removeprefix(b"data:").strip() for line in body.split(b"\n"))
    return [line for line in lines if line and line[:1] != b":"]


def _too_large() -> ProviderRefused:
    return ProviderRefused("The model's reply is too large.", code="reply_too_large")
