"""Responses of HTTP/1.1 from bytes, as httptools (Node's llhttp) reads them: incremental, bounded.

1. Any cutting of the same bytes gives the same response; a body comes as soon as it is there.
2. A body ends where RFC 9112 says: at once without one, by chunks, by its length, or with the
   connection. One that ends earlier is `Broken`, and so is what is not HTTP.
3. As lenient as servers need it: folded headers, a lone LF behind a header, interim responses
   (100, 103). A length that is unclear is refused, never guessed.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD_BYTES = 64 * 1024
"""Of a head, and of all that is not body between two pieces of one: chunks' sizes, trailers."""


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
        self._besides = 0
        """Bytes since the last piece."""
        # llhttp calls these; what it has for a body goes into the list without a function of ours.
        self.on_body = self.pieces.append
        parser = HttpResponseParser(self)
        parser.set_dangerous_leniencies(lenient_headers=True, lenient_optional_cr_before_lf=True)
        self._parser: HttpResponseParser | None = parser
        """Until the response has ended: it holds us, too."""

    def feed(self, read: bytes) -> None:
        """Take what was read. Raises Broken."""
        if self._parser is None:
            self.reusable = False  # nobody asked for that
            return
        self._parse(self._parser, read)
        if self.complete:
            self.end()

    def _parse(self, parser: HttpResponseParser, read: bytes) -> None:
        known = len(self.pieces)
        try:
            parser.feed_data(read)
        except (HttpParserError, HttpParserUpgrade) as trouble:
            if not self.complete:
                raise Broken from trouble
            self.reusable = False  # what is behind the response
        if len(self.pieces) > known:
            self._besides = 0
        elif not self.complete:
            self._besides += len(read)
            if self._besides > MAX_HEAD_BYTES:
                raise Broken

    def eof(self) -> None:
        """The connection ended. Raises Broken when the response had not."""
        self.reusable = False
        if not (self.complete or self._ends_with_connection()):
            raise Broken
        self.complete = True
        self.end()

    def end(self) -> None:
        """Nothing more is read, whether or not this was all."""
        self._parser = None

    def _ends_with_connection(self) -> bool:
        framed = self.headers.keys() & {"content-length", "transfer-encoding"}
        return bool(self.status) and not framed

    # ── llhttp's ──────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        if self.complete:
            raise Broken  # a second response, of which nothing is read

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # else a trailer, which says nothing that we need
            self.headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()  # an interim one
        elif self.headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise Broken  # packed once more, which we did not ask for
        else:
            self.status = status

    def on_message_complete(self) -> None:
        if self.status:
            assert self._parser is not None
            self.complete = True
            self.reusable = self._parser.should_keep_alive()
