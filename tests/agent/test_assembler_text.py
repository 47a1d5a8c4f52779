"""Chunks to replies: what is text and what is reasoning, and our key in neither."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.events import ToolCallDelta
from agent.scrub import Scrubber
from tests.support.chunks import (
    PA,
    A,
    assemble,
    assembler,
    call,
    calls_in,
    check_deltas,
    chunk,
    event,
    reasoning_of,
    reply_to,
    text_of,
)


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "why"},
        {"reasoning": "why"},
        {"thinking": "why"},
        {"reasoning": {"text": "why"}},
        {"reasoning": "why", "reasoning_content": "why"},
        {"reasoning": "why", "reasoning_details": [{"type": "reasoning.text", "text": "why"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "why"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "why"}]}]},
    ],
)
def test_reasoning_in_any_field_is_its_own_block(delta):
    reply = reply_to(chunk(**delta), chunk(content="so"), chunk("stop"))
    assert (reasoning_of(reply), text_of(reply)) == ("why", "so")


def test_signed_reasoning_details_are_put_together_for_the_way_back():
    part = {"type": "reasoning.text", "index": 0}
    reply = reply_to(
        chunk(reasoning_details=[{**part, "text": "wh"}]),
        chunk(reasoning_details=[{**part, "text": "y"}]),
        chunk(reasoning_details=[{**part, "signature": "s"}]),
        chunk("stop", content="so"),
    )
    (block, _) = reply.blocks
    assert block.provider_data == {"reasoning_details": [{**part, "signature": "s", "text": "why"}]}


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("<think>why</think>so", "why", "so"),
        ("\n <think>\nwhy</think>\n\nso", "why", "so"),
        ("<thinking>why</thinking>so", "why", "so"),
        ("<think></think>so", "", "so"),
        ("<think>\n\n</think>\n\nso", "", "so"),
        ("<think>a</think> <think>b</think>c", "ab", "c"),
        ("<think>never closed</thi", "never closed</thi", ""),
        ("<think>1 < 2 </b></think>so", "1 < 2 </b>", "so"),
        ("the <think> tag", "", "the <think> tag"),
        ("<thin", "", "<thin"),
        ("<b>so</b> <", "", "<b>so</b> <"),
        ("</think>\n\nso", "", "so"),
        ("  indented", "", "  indented"),
        (" " * 600 + "x", "", " " * 600 + "x"),
    ],
)
def test_think_tags_at_the_beginning_are_reasoning(answer, reasoning, text):
    for pieces in ([answer], list(answer)):
        reply = reply_to(*(chunk(content=piece) for piece in pieces), chunk("stop"))
        assert (reasoning_of(reply), text_of(reply)) == (reasoning, text)


def test_a_model_that_starts_inside_its_reasoning():
    reply = reply_to(
        *(chunk(content=p) for p in "\nwhy</think>\n\nso"), chunk("stop"), think_open=True
    )
    assert (reasoning_of(reply), text_of(reply)) == ("why", "so")


@pytest.mark.parametrize(
    "content",
    ["so", [{"type": "text", "text": "so"}], [{"type": "text", "text": "s"}, "o"], {"text": "so"}],
)
def test_content_in_any_shape_is_text(content):
    assert text_of(reply_to(chunk("stop", content=content))) == "so"


def test_a_refusal_is_text():
    assert text_of(reply_to(chunk("stop", refusal="I will not."))) == "I will not."


def test_a_whole_message_in_a_stream_chunk():
    message = {"content": "so", "tool_calls": [call(A, "read", id="x")]}
    reply = reply_to({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    assert text_of(reply) == "so"
    assert calls_in(reply)[0].arguments == PA


def test_a_message_that_repeats_the_deltas_says_nothing_new():
    message = {"content": "so", "tool_calls": [call(A, "read", id="x")]}
    reply = reply_to(
        chunk(content="so"),
        chunk(tool_calls=[call(A, "read", id="x")]),
        {"choices": [{"delta": {}, "message": message, "finish_reason": "stop"}]},
    )
    assert text_of(reply) == "so"
    assert len(calls_in(reply)) == 1


@pytest.mark.parametrize("contents", [["a", "b"], ["a", "ab"]])
def test_messages_instead_of_deltas_grow_or_go_on(contents):
    chunks = [{"choices": [{"message": {"content": text}}]} for text in contents]
    assert text_of(reply_to(*chunks)) == "ab"


def test_a_second_choice_is_not_ours():
    two = {
        "choices": [
            {"index": 0, "delta": {"content": "a"}},
            {"index": 1, "delta": {"content": "b"}},
        ]
    }
    assert text_of(reply_to(two)) == "a"


KEY = "sk-sk-live-CANARY"

keyed = Scrubber(KEY)


def parts(text: str, *cuts: int) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("cut", range(1, len(KEY)))
@pytest.mark.parametrize("field", ["content", "reasoning_content", "arguments"])
def test_a_repeated_key_never_leaves_however_it_is_cut(field, cut):
    pieces = parts(f'{{"a":"sk-{KEY}{KEY}"}}', 9 + cut, 9 + len(KEY) + cut)
    if field == "arguments":
        entries = [call(piece, "f" if not n else None, index=0) for n, piece in enumerate(pieces)]
        values = [chunk(tool_calls=[entry]) for entry in entries]
    else:
        values = [chunk(**{field: piece}) for piece in pieces]
    deltas, reply = assemble([*(event(value) for value in values), event(b"[DONE]")], scrub=keyed)
    check_deltas(deltas, reply)
    assert "".join(delta.delta for delta in deltas) == '{"a":"sk-******"}'
    assert field != "arguments" or calls_in(reply)[0].arguments == {"a": "sk-******"}


def test_only_what_may_become_the_key_is_held_back():
    target = assembler(scrub=keyed)

    def said(content: str) -> str:
        deltas = target.feed([json.dumps(chunk(content=content)).encode()])
        return "".join(delta.delta for delta in deltas)

    assert [
        said("ask "),
        said("a risk-sk"),
        said("-sk-"),
        said("live\ud83d"),
        said("\ude00 sk"),
    ] == ["ask ", "a ri", "sk-", "sk-sk-live", "\U0001f600 "]
    target.feed([b"[DONE]"])
    rest, reply = target.finish()
    assert [delta.delta for delta in rest] == ["sk"]
    assert text_of(reply) == "ask a risk-sk-sk-live\U0001f600 sk"


def test_names_ids_escapes_and_opaque_data_lose_the_key():
    escaped = json.dumps({KEY: [{"deep": f"{KEY}!"}]}).replace("sk-", "\\u0073k-")
    entry = call(escaped, KEY, index=0, id=KEY, extra_content={"signature": [KEY]})
    detail = {"type": "reasoning.text", "text": "t", "signature": KEY}
    deltas, reply = assemble(
        [event(chunk(KEY, tool_calls=[entry], reasoning_details=[detail])), event(b"[DONE]")],
        scrub=keyed,
    )
    (found,) = calls_in(reply)
    assert (found.name, found.tool_call_id) == ("***", "***")
    assert found.arguments == {"***": [{"deep": "***!"}]}
    assert "CANARY" not in f"{reply.blocks} {reply.finish_reason}"
    assert not [delta for delta in deltas if isinstance(delta, ToolCallDelta) and delta.name == KEY]


def test_a_key_in_broken_arguments_is_scrubbed():
    reply = reply_to(chunk(tool_calls=[call(f"{{{KEY}", "f")]), scrub=keyed)
    assert calls_in(reply)[0].raw_arguments == "{***"


def test_opaque_data_too_deep_to_look_through_is_left_out():
    deep: Any = KEY
    for _ in range(600):
        deep = [deep]
    reply = reply_to(chunk(tool_calls=[call("{}", "f", extra_content=deep)]), scrub=keyed)
    assert calls_in(reply)[0].provider_data is None


@pytest.mark.parametrize("key", ["", "model", "lm-studio", "not-needed"])
def test_no_key_and_words_that_are_no_key_change_nothing(key):
    text = "A model s on lm-studio, not-needed"
    reply = reply_to(chunk(content=text), scrub=Scrubber(key))
    assert text_of(reply) == text


@given(
    st.text("abk"), st.text("ab", min_size=16, max_size=18), st.lists(st.integers(0), max_size=8)
)
def test_any_cutting_of_a_text_gives_the_same_without_the_key(text, key, cuts):
    whole = text + key + text
    values = [chunk(content=piece) for piece in parts(whole, *cuts)]
    reply = reply_to(*values, scrub=Scrubber(key))
    assert text_of(reply) == whole.replace(key, "***")


def test_a_field_behind_the_answer_is_no_part_of_it():
    """Where all around it is as in the events before and behind it."""
    alike = [event({"choices": [{"delta": {"content": text}}]}) for text in "abc"]
    other = alike[0].replace(b'"a"', b'"d", "reasoning": "e"')
    _deltas, reply = assemble([*alike, alike[1] + other + alike[2], event(chunk("stop"))])
    assert (text_of(reply), reasoning_of(reply)) == ("abcbdc", "e")
