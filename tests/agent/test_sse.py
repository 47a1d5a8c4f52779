"""Bytes to events: every cutting of the same bytes gives the same payloads."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderRefused
from agent.providers.sse import SSEParser


def parse(*reads: bytes, limit: int = 1000) -> list[bytes]:
    parser = SSEParser(limit)
    return [payload for read in reads for payload in parser.feed(read)] + parser.close()


def test_two_events_in_one_read():
    assert parse(b"data: one\n\ndata: two\n\n") == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_each_line_end_of_the_standard(end):
    stream = b"data: a" + end + b"data: b" + end + end + b"data: c" + end + end
    assert parse(stream) == [b"a\nb", b"c"]
    assert parse(*(bytes([byte]) for byte in stream)) == [b"a\nb", b"c"]


def test_nothing_else_ends_a_line():
    text = "data: a\u2028b\u2029c\u0085d\x0b\x0c\x1ce\n\n".encode()
    assert parse(text) == [text[6:-2]]


@pytest.mark.parametrize(
    ("stream", "payloads"),
    [
        (b"data:x\n\n", [b"x"]),
        (b"data:  x \n\n", [b" x "]),
        (b"data\n\n", [b""]),
        (b"\xef\xbb\xbfdata: x\n\n", [b"x"]),
        (b"\xef\xbb\xbf: note\n\ndata: x\n\n", [b"x"]),
        (b": note\n\n:\n\nid: 1\nevent: e\nretry: 5\ndata: x\n\nid: 2\n\n", [b"x"]),
        (b"database: no\ndata : no\n data: no\n\n", []),
        (b"data: unfinished", [b"unfinished"]),
        (b"data: unfinished\r", [b"unfinished"]),
        (b'data: a\n\n{"error": 1}\n', [b"a", b'{"error": 1}']),
        (b"", []),
    ],
)
def test_fields_comments_and_ends(stream, payloads):
    assert parse(stream) == payloads
    assert parse(*(bytes([byte]) for byte in stream)) == payloads


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 100,
        b": " + b"x" * 100 + b"\n\n",
        b"data: " + b"x" * 40 + b"\ndata: " + b"x" * 40 + b"\n\n",
        b"data: x\n" * 30 + b"\n",
    ],
)
def test_an_endless_line_or_event_is_refused_however_it_is_cut(stream):
    for reads in ([stream], [bytes([byte]) for byte in stream]):
        with pytest.raises(ProviderRefused) as caught:
            parse(*reads, limit=80)
        assert caught.value.code == "reply_too_large"


piece = st.sampled_from(
    [
        b"data: ",
        b"data:",
        b"data",
        b"id: 1",
        b": c",
        b"\n",
        b"\r",
        b"\r\n",
        b"\n\n",
        b"x",
        b"{",
        b" ",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x99\x82",
        b"\xe2\x80\xa8",
        b"\xff",
        b"\x00",
    ]
)


@given(st.lists(piece, max_size=40).map(b"".join), st.lists(st.integers(0, 200), max_size=12))
def test_any_cutting_gives_the_same_payloads(stream, cuts):
    edges = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reads = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert parse(*reads) == parse(stream)
