"""Responses from bytes: the same whatever the cuts, as h11 reads them, and never guessed at."""

from __future__ import annotations

from collections.abc import Iterator

import h11
import pytest

from agent.providers.http1 import MAX_HEAD_BYTES, Broken, ResponseParser
from tests.support.counting import python_calls

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
WHOLE = {
    "length": HEAD + b"Content-Length: 5\r\n\r\nHello",
    "nothing": HEAD + b"Content-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "chunks": CHUNKED + b"3\r\nHel\r\n2\r\nlo\r\n0\r\n\r\n",
    "large chunk": CHUNKED + b"0005\r\nHello\r\n00\r\n\r\n",
    "line ends inside": CHUNKED + b"9\r\n\r\n0\r\n\r\n\r\n\r\n0\r\n\r\n",
    "extensions and trailers": CHUNKED + b"5;a=b\r\nHello\r\n0\r\nX-Sum: 1\r\nX-B: 2\r\n\r\n",
    "capital digits": CHUNKED + b"A\r\n0123456789\r\n0\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    + HEAD
    + b"Content-Length: 2\r\n\r\nHi",
    "no reason": b"HTTP/1.1 404 \r\nContent-Length: 2\r\n\r\nno",
    "closing": HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nHi",
    "older": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nHi",
}
ODD = {
    "line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nHi", b"Hi"),
    "a space before a colon": (b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nHi", b"Hi"),
    "folded": (HEAD + b"X-A: b\r\n  c\r\nContent-Length: 2\r\n\r\nHi", b"Hi"),
    "blank lines before": (b"\r\n\r\n" + HEAD + b"Content-Length: 2\r\n\r\nHi", b"Hi"),
}
BROKEN = {
    "a web server of another kind": b"SSH-2.0-OpenSSH_9.6\r\n",
    "newer": b"HTTP/2 200\r\n\r\n",
    "switching": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "no colon": b"HTTP/1.1 200 OK\r\nServer\r\n\r\n",
    "odd name": b"HTTP/1.1 200 OK\r\nContent(Length: 5\r\n\r\nHello",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nHello",
    "length and coding": HEAD + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nHi",
    "other lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nHello!",
    "negative": HEAD + b"Content-Length: -5\r\n\r\nHello",
    "sum": HEAD + b"Content-Length: +5\r\n\r\nHello",
    "other coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "no size": CHUNKED + b"Hello\r\n",
    "prefixed size": CHUNKED + b"0x5\r\nHello\r\n",
    "negative size": CHUNKED + b"-5\r\nHello\r\n",
    "huge size": CHUNKED + b"FFFFFFFFFFFFFFFFF\r\n",
    "endless head": HEAD + b"X-A: " + b"a" * MAX_HEAD_BYTES,
    "endless size": CHUNKED + b"5;" + b"a" * (MAX_HEAD_BYTES + 1),
    "endless trailers": CHUNKED + b"0\r\n" + b"X-A: b\r\n" * (MAX_HEAD_BYTES // 8 + 1),
}


def cuttings(text: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in two at every place of what is short."""
    yield [text]
    if len(text) < 1000:
        yield [text[at : at + 1] for at in range(len(text))]
        yield from ([text[:at], text[at:]] for at in range(1, len(text)))


def parsed(reads: list[bytes]) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    body = b""
    for read in reads:
        parser.feed(read)
        body += b"".join(parser.pieces)
        parser.pieces.clear()
    return parser, body


def as_h11(text: bytes) -> tuple[int, dict[str, str], bytes]:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "a")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(text)
    status, headers, body = 0, {}, b""
    while not isinstance(event := connection.next_event(), h11.EndOfMessage):
        if isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
    return status, headers, body


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_a_response_is_the_same_whatever_the_cuts_and_as_h11_reads_it(text: bytes) -> None:
    theirs = as_h11(text)
    for reads in cuttings(text):
        parser, body = parsed(reads)
        assert parser.complete
        assert (parser.status, parser.headers, body) == theirs


@pytest.mark.parametrize(("text", "whole"), ODD.values(), ids=ODD)
def test_what_only_some_servers_write_is_read_too(text: bytes, whole: bytes) -> None:
    for reads in cuttings(text):
        parser, body = parsed(reads)
        assert (parser.complete, body) == (True, whole)


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_what_is_unclear_is_refused_whatever_the_cuts(text: bytes) -> None:
    for reads in cuttings(text):
        with pytest.raises(Broken):
            parsed(reads)


@pytest.mark.parametrize("text", WHOLE.values(), ids=WHOLE)
def test_an_end_in_the_middle_is_noticed(text: bytes) -> None:
    for at in range(len(text)):
        parser, _ = parsed([text[:at]])
        assert not parser.complete
        with pytest.raises(Broken):
            parser.eof()


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser, body = parsed([HEAD + b"\r\nHel", b"lo"])
    assert not parser.complete
    parser.eof()
    assert (parser.complete, parser.reusable, body) == (True, False, b"Hello")


@pytest.mark.parametrize(
    ("name", "behind", "reusable"),
    [
        ("length", b"", True),
        ("chunks", b"", True),
        ("no content", b"", True),
        ("closing", b"", False),
        ("older", b"", False),
        ("length", b"HTTP", False),
        ("chunks", b"HTTP", False),
        ("no content", b"HTTP", False),
    ],
)
def test_a_connection_is_used_again_only_where_nothing_else_can_come(
    name: str, behind: bytes, reusable: bool
) -> None:
    for reads in cuttings(WHOLE[name]):
        parser, _ = parsed([*reads[:-1], reads[-1] + behind])
        assert parser.reusable is reusable


def test_a_chunk_costs_no_call_of_a_function() -> None:
    def calls(chunks: int) -> int:
        parser = ResponseParser()
        parser.feed(CHUNKED)
        with python_calls() as names:
            parser.feed(b"5\r\nHello\r\n" * chunks)
        assert len(parser.pieces) == chunks
        return len(names)

    assert calls(1000) == calls(1) < 5
