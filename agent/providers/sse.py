"""Server-Sent Events from bytes: pure, incremental, bounded.

1. Only CR, LF and CRLF end a line; U+2028 and U+0085 are text. Splitting happens on bytes, so a
   character cut in two by the network is whole again before anything decodes it.
2. Any cutting of the same bytes gives the same payloads.
3. A last event without its blank line counts (`close()`): many servers just hang up.
4. A line that starts with `{` is data although it lacks the field name: proxies that fail in the
   middle of a stream write their JSON error so, and no SSE field can begin like that.
5. Events that only one line end parts are told apart where JSON says so: no document goes on with
   `{` or `[DONE]` behind a `}`.
6. The data of `event: error` is an error, also when it is plain text.
"""

from __future__ import annotations

import json

from agent.errors import ProviderRefused

MAX_EVENT_BYTES = 8 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class SSEParser:
    """Feed it network reads, get the `data` of complete events; ids and other names are ignored."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._tail = bytearray()
        """The line that is not complete yet; never holds a line end."""
        self._data: list[bytes] = []
        self._size = 0
        self._failed = False
        """Whether the event is named `error`."""
        self._after_cr = False
        self._started = False

    @property
    def between(self) -> bool:
        """Whether what comes next begins an event."""
        return not (self._tail or self._data or self._failed or self._after_cr)

    def feed(self, read: bytes) -> list[bytes]:
        """The payloads that this read completes. Raises ProviderRefused when one grows too large."""
        if self._after_cr and read:
            self._after_cr = False
            if read[0] == 10:  # the LF of a CRLF that was cut in two
                read = read[1:]
        if b"\r" in read:
            self._after_cr = read[-1] == 13
            read = read.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in read:
            self._grow(read)
            return []
        if self._tail:
            read = bytes(self._tail) + read
            self._tail.clear()
        payloads, rest = self._usual(read)
        return payloads + self._payloads(self._complete_lines(rest)) if rest else payloads

    def _usual(self, text: bytes) -> tuple[list[bytes], bytes]:
        """Events of one `data: ` line each, as nearly all are, and what is left of the text."""
        end = text.rfind(b"\n\n") + 2
        if self._data or self._failed or text[:6] != b"data: " or not 8 <= end <= self._limit:
            return [], text
        payloads = text[6 : end - 2].split(b"\n\ndata: ")
        if text.count(b"\n", 0, end) != 2 * len(payloads):
            return [], text
        self._started = True
        return payloads, text[end:]

    def close(self) -> list[bytes]:
        """What was still open when the stream ended."""
        if not (self._tail or self._data):
            return []
        rest = bytes(self._tail) + b"\n\n"
        self._tail.clear()
        return self._payloads(self._complete_lines(rest))

    def _grow(self, read: bytes) -> None:
        self._tail += read
        if len(self._tail) > self._limit:
            raise _too_large(self._limit)

    def _complete_lines(self, text: bytes) -> list[bytes]:
        lines = text.split(b"\n")
        self._grow(lines.pop())
        if not self._started:
            self._started = True
            lines[0] = lines[0].removeprefix(_BOM)
        if len(text) > self._limit and max(map(len, lines)) > self._limit:
            raise _too_large(self._limit)
        return lines

    def _payloads(self, lines: list[bytes]) -> list[bytes]:
        payloads: list[bytes] = []
        for line in lines:
            if line[:6] == b"data: ":
                data = line[6:]
            elif not line:
                if self._data:
                    payloads.append(self._complete())
                self._failed = False
                continue
            elif line[:1] == b":":
                continue
            elif (found := self._field(line)) is not None:
                data = found
            else:
                continue
            if self._data and _begins_anew(self._data[-1], data):
                payloads.append(self._complete())
            self._data.append(data)
            self._size += len(line) + 1
            if self._size > self._limit:
                raise _too_large(self._limit)
        return payloads

    def _field(self, line: bytes) -> bytes | None:
        """The data of a line that is not of the usual form."""
        if line[:5] == b"data:":
            return line[5:]
        if line[:1] == b"{" or line == b"data":
            return line.removeprefix(b"data")
        if line[:6] == b"event:":
            self._failed = line[6:].strip() == b"error"
        return None

    def _complete(self) -> bytes:
        data, self._data, self._size = self._data, [], 0
        payload = data[0] if len(data) == 1 else b"\n".join(data)
        return _as_error(payload) if self._failed else payload


def _begins_anew(before: bytes, line: bytes) -> bool:
    return before.rstrip()[-1:] == b"}" and line.lstrip()[:1] in (b"{", b"[")


def _as_error(payload: bytes) -> bytes:
    if b'"error"' in payload:
        return payload
    if payload.lstrip()[:1] == b"{":
        return b'{"error":' + payload + b"}"
    return json.dumps({"error": payload.decode("utf-8", "replace")}).encode()


def _too_large(limit: int) -> ProviderRefused:
    return ProviderRefused(
        f"The model's server sent one event of more than {limit:,} bytes.",
        code="reply_too_large",
        hint="Check that the base URL is an OpenAI-compatible /v1 address.",
    )
