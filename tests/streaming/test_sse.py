"""The encoder and the cursor."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.sse import (
    CONNECTED,
    HEARTBEAT,
    encode,
    live_frame,
    parse_cursor,
    retry,
    stored_frame,
)
from tasks.errors import Invalid
from tests.support.sse import Parser

LINE_ENDS = "\r\n\u0085\u2028\u2029\v\f\x1c\x1d\x1e"


def test_a_live_frame_is_one_event_without_an_id() -> None:
    frame = live_frame("assistant_delta", {"delta": "héllo"}, "t")
    assert (
        frame
        == (
            'event: assistant_delta\ndata: {"sequence":0,"type":"assistant_delta",'
            '"task_id":"t","payload":{"delta":"héllo"}}\n\n'
        ).encode()
    )
    assert b"task_id" not in live_frame("connected", {})


def test_a_stored_frame_puts_the_stream_s_id_before_the_shared_body() -> None:
    body = b'event: user_message\ndata: {"type":"user_message"}\n\n'
    assert stored_frame(41, body) == b"id: 41\n" + body


def test_comments_and_retry_are_no_events() -> None:
    parser = Parser()
    assert parser.feed(CONNECTED + retry(2000) + HEARTBEAT) == []
    assert parser.comments == ["connected", "heartbeat"]
    assert parser.retry == 2000


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from(LINE_ENDS))))
def test_any_text_survives_and_stays_on_one_line(text: str) -> None:
    """Also lone surrogates, which become a replacement character instead of an error."""
    frame = live_frame("assistant_delta", {"delta": text})
    decoded = frame.decode()
    assert decoded.count("\n") == 3
    assert not set(decoded) & {"\u0085", "\u2028", "\u2029", "\r"}
    [event] = Parser().feed(frame)
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert event.payload["delta"] == text


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\u0085"])
def test_what_some_readers_take_for_line_ends_is_escaped(character: str) -> None:
    assert encode(f"é{character}é") == f'"é\\u{ord(character):04x}é"'.encode()
    # The neighbours share bytes with them and stay as they are.
    for neighbour in ("\u2027", "\u202a", "\u0084", "\u0086", "\ua028"):
        assert encode(neighbour) == f'"{neighbour}"'.encode()


class Odd:
    def __str__(self) -> str:
        return "odd \ud800"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Odd(), "odd \ufffd"),
        ({"a": {1, "\ud83d"}}, None),
        ({"\ud800": [("\udfff", 1.5, None, True)]}, {"\ufffd": [["\ufffd", 1.5, None, True]]}),
        (Decimal("1.50"), "1.50"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (float("nan"), None),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_what_json_cannot_say_becomes_its_string(value: Any, expected: Any) -> None:
    decoded = json.loads(encode(value))
    if expected is not None:
        assert decoded == expected


def test_what_is_nested_without_end_is_cut_off() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    text = encode({"deep": nested}).decode()
    assert text.startswith('{"deep":[[[')
    assert "…" in text
    # Taken apart from outside: the interpreter's own clean-up of so deep a list is not the test.
    while nested:
        nested = nested.pop()


# ── the cursor: case B03's table ──────────────────────────────────────────────────────────────

HUGE = "999999999999999999999"


@pytest.mark.parametrize(
    ("header", "last_event_id", "after", "cursor"),
    [
        (None, None, None, 0),
        ("0", None, None, 0),
        ("5", None, None, 5),
        ("299", None, None, 299),
        ("007", None, None, 7),
        (" 5", None, None, 5),
        ("5\t", None, None, 5),
        ("", None, None, 0),
        ("", "5", None, 5),
        (None, "", "", 0),
        (HUGE, None, None, int(HUGE)),
        (None, "5", None, 5),
        (None, None, "6", 6),
        (None, "5", "6", 5),
        ("7", "5", "6", 7),
        ("0", "5", "6", 0),
        ("7", "garbage", "6", 7),
    ],
)
def test_the_first_cursor_that_is_given_counts(
    header: str | None, last_event_id: str | None, after: str | None, cursor: int
) -> None:
    assert parse_cursor(header, last_event_id, after) == cursor


GARBAGE = [
    "-1",
    "+5",
    "abc",
    "5.0",
    "5e3",
    "0x5",
    "5 6",
    "1_000",
    "\u0665",
    "5\u00a0",
    "²",
    "null",
    str(uuid.UUID(int=7)),
    "9" * 10_240,
]


@pytest.mark.parametrize("value", GARBAGE)
def test_a_cursor_that_is_no_number_is_refused(value: str) -> None:
    for given_ in ((value, "5"), (None, value), (None, None, value)):
        with pytest.raises(Invalid) as refused:
            parse_cursor(*given_)
        assert refused.value.code == "invalid_cursor"


def test_white_space_belongs_to_a_query_s_value() -> None:
    with pytest.raises(Invalid):
        parse_cursor(None, " 5")
