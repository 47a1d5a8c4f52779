"""Chunks to replies: the collected streams of real providers, their deltas and tool calls."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderIncomplete, ProviderUnavailable
from agent.events import AssistantDelta, ReasoningDelta, ToolCallDelta
from agent.messages import Reply, Usage
from tests.support import cases
from tests.support.chunks import (
    PA,
    PB,
    A,
    B,
    assemble,
    assembler,
    call,
    calls_in,
    check_deltas,
    chunk,
    reasoning_of,
    reply_to,
    text_of,
)
from tests.support.counting import circles


def calls_of(*entries: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str, Any]]:
    """Each entry in a chunk of its own -> (id, name, arguments) of the calls."""
    reply = reply_to(*(chunk(tool_calls=[entry]) for entry in entries), chunk(finish))
    return [(c.tool_call_id, c.name, c.arguments) for c in calls_in(reply)]


def compare(case: str, reply: Reply) -> None:
    right = cases.expected(case)
    text = text_of(reply).strip() if right.get("strip_text") else text_of(reply)
    assert text in right.get("text_any_of", [right["text"]])
    assert reasoning_of(reply) == right["reasoning"]
    assert reply.finish_reason == right["finish_reason"]
    assert [c.name for c in calls_in(reply)] == [c["name"] for c in right["tool_calls"]]
    for found, wanted in zip(calls_in(reply), right["tool_calls"], strict=True):
        assert wanted["id"] in ("*", found.tool_call_id)
        assert found.arguments == (
            None if wanted["arguments"] == "INVALID" else wanted["arguments"]
        )
    if right["usage"]:
        assert reply.usage == Usage(
            input_tokens=right["usage"]["prompt_tokens"],
            output_tokens=right["usage"]["completion_tokens"],
        )
    else:
        assert reply.usage.estimated


STREAMS = [
    name
    for name in cases.names("A")
    if cases.expected(name)["outcome"] != "error" and cases.turns(name)[0].status == 200
]


@pytest.mark.parametrize("case", STREAMS)
def test_a_collected_stream_gives_the_right_reply(case):
    stream = b"".join(cases.turns(case)[0].chunks)
    for reads in (list(cases.turns(case)[0].chunks), [stream], [bytes([byte]) for byte in stream]):
        deltas, reply = assemble(reads)
        check_deltas(deltas, reply)
        compare(case, reply)


def test_a_reply_leaves_nothing_to_the_collector():
    said = {"reasoning_content": "Hm."}, {"content": "Yes."}, {"tool_calls": [call("{}", "read")]}
    with circles() as found:
        reply = reply_to(*(chunk(**each) for each in said), chunk("tool_calls"))
    assert len(reply.blocks) == 3
    assert not found


@given(st.sampled_from(STREAMS), st.sets(st.integers(1, 1500), max_size=20))
def test_any_cutting_of_a_stream_gives_the_same_reply(case, cuts):
    stream = b"".join(cases.turns(case)[0].chunks)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    deltas, reply = assemble([stream[a:b] for a, b in itertools.pairwise(edges)])
    check_deltas(deltas, reply)
    assert reply == assemble([stream])[1]


def test_a_reset_in_the_middle_is_incomplete():
    with pytest.raises(ProviderIncomplete):
        assemble(list(cases.turns("A20")[0].chunks))


def test_an_error_object_inside_a_stream_is_raised_with_its_message():
    with pytest.raises(ProviderUnavailable, match="Worker limit reached") as caught:
        assemble(list(cases.turns("A39")[0].chunks))
    assert caught.value.status == 503


def test_what_arrives_together_is_one_delta_per_block():
    payloads = [
        json.dumps(chunk(reasoning_content="Hm")).encode(),
        json.dumps(chunk(content="Hel")).encode(),
        json.dumps(chunk(content="lo")).encode(),
        json.dumps(chunk(tool_calls=[call('{"a"', "f", index=0)])).encode(),
        json.dumps(chunk(tool_calls=[call(":1}", index=0)])).encode(),
    ]
    assert assembler().feed(payloads) == [
        ReasoningDelta(step=3, block_id="b1", offset=0, delta="Hm"),
        AssistantDelta(step=3, block_id="b2", offset=0, delta="Hello"),
        ToolCallDelta(step=3, block_id="b3", index=0, name="f", offset=0, delta='{"a":1}'),
    ]


def test_long_text_is_cut_into_deltas_of_512_code_points():
    deltas = assembler().feed([json.dumps(chunk(content="🙂" * 1300)).encode()])
    assert [(delta.offset, len(delta.delta)) for delta in deltas] == [
        (0, 512),
        (512, 512),
        (1024, 276),
    ]


def test_a_surrogate_pair_cut_in_two_is_one_character():
    halves = [
        b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\\ude42b"}}]}',
    ]
    target = assembler()
    assert [d.delta for half in halves for d in target.feed([half])] == ["a", "🙂b"]
    assert text_of(reply_to(*halves, chunk("stop"))) == "a🙂b"


def test_a_lone_surrogate_at_the_very_end_is_replaced():
    assert text_of(reply_to(b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}')) == "a\ufffd"


FRAGMENTS = ['{"pa', 'th":', '"a"}']


@pytest.mark.parametrize(
    "entries",
    [
        [call(f, "read" if i == 0 else None, index=0) for i, f in enumerate(FRAGMENTS)],
        [call(f, "read" if i == 0 else None) for i, f in enumerate(FRAGMENTS)],
        [
            call(f, "read" if i == 0 else "", index=0, id="" if i else "x")
            for i, f in enumerate(FRAGMENTS)
        ],
        [call(f, "read", id=f"other{i}", index=0) for i, f in enumerate(FRAGMENTS)],
        [
            call(f, "read" if i == 0 else None, id=f"other{i}", index=0)
            for i, f in enumerate(FRAGMENTS)
        ],
        [call(f, "read" if i == 0 else None, index=i) for i, f in enumerate(FRAGMENTS)],
        [call(f, "read" if i == 0 else None, id="x", index=i) for i, f in enumerate(FRAGMENTS)],
        [call(f, "read", index="0") for f in FRAGMENTS],
        [call("", "re", index=0), call("", "ad", index=0), *(call(f, index=0) for f in FRAGMENTS)],
        [
            call(None, None, index=0, id="x"),
            call("", "read", index=0),
            *(call(f, index=0) for f in FRAGMENTS),
        ],
        [*(call(f, "read", id="x", index=0) for f in FRAGMENTS), call(A, "read", id="x", index=0)],
        [call(A, "read", index=0, id="x"), call("", "", index=0, id="")],
    ],
)
def test_one_call_however_its_fragments_are_labelled(entries):
    found = calls_of(*entries)
    assert [(name, arguments) for _, name, arguments in found] == [("read", PA)]


@pytest.mark.parametrize(
    "entries",
    [
        [call(A, "read", index=0), call(B, "read", index=1)],
        [call(A, "read", index=0), call(B, "read", index=0)],
        [call(A, "read"), call(B, "read")],
        [call(A, "read", id="x"), call(B, "read", id="y")],
        [call(A, "read", id="x", index=0), call(B, "read", id="x", index=1)],
        [call(A, "read", id="x", index=0), call(B, "read", id="x", index=0)],
        [call(PA, "read", index=0, id=""), call(PB, "read", index=1, id="")],
        [
            call('{"path":', "read", index=0, id="x"),
            call('{"path":', "read", index=1, id="y"),
            call('"a"}', index=0),
            call('"b"}', index=1),
        ],
        [
            call('{"path":', "read", index=0, id="x"),
            call('{"path":', "read", index=0, id="y"),
            call('"a"}', id="x", index=0),
            call('"b"}', id="y", index=0),
        ],
    ],
)
def test_two_calls_however_they_are_labelled(entries):
    assert [(name, arguments) for _, name, arguments in calls_of(*entries)] == [
        ("read", PA),
        ("read", PB),
    ]


def test_calls_without_arguments_are_told_apart_by_their_ids():
    entries = [call("", "now", index=0, id="x"), call("", "now", index=0, id="y")]
    assert calls_of(*entries) == [("x", "now", {}), ("y", "now", {})]


def test_ids_stay_as_they_are_and_empty_ones_empty():
    assert [found[0] for found in calls_of(call(A, "read", id="x"), call(B, "read", index=7))] == [
        "x",
        "",
    ]


def test_empty_entries_are_nothing():
    assert calls_of({}, call("", ""), {"index": 0, "id": None, "function": None}) == []


def test_the_legacy_function_call_is_a_call():
    reply = reply_to(
        chunk(function_call={"name": "read", "arguments": ""}),
        chunk(function_call={"arguments": '{"path":'}),
        chunk(function_call={"arguments": '"a"}'}),
        chunk("function_call"),
    )
    assert [(c.name, c.arguments) for c in calls_in(reply)] == [("read", PA)]


@pytest.mark.parametrize("blank", ["", " ", "\n", "{}", "null", None, {}])
def test_no_arguments_are_an_empty_object(blank):
    assert calls_of(call(blank, "now", index=0, id="x")) == [("x", "now", {})]


@pytest.mark.parametrize(
    "broken",
    [
        '["a"]',
        '"a"',
        "5",
        "true",
        '{"a":',
        '{"a":1}}',
        "{a:1}",
        "```json\n{}\n```",
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":1e999}',
        '{"a":9223372036854775808}',
        '{"a":' + "9" * 5000 + "}",
        '{"a":' * 100 + "1" + "}" * 100,
        "[" * 100000,
        ["a"],
        5,
    ],
)
def test_broken_arguments_are_kept_but_never_executable(broken):
    reply = reply_to(chunk(tool_calls=[call(broken, "read", index=0, id="x")]), chunk("tool_calls"))
    (found,) = calls_in(reply)
    assert found.arguments is None
    assert "not executed" in found.problem
    text = broken if isinstance(broken, str) else json.dumps(broken)
    assert found.raw_arguments[:100] == text[:100]
    assert len(found.raw_arguments) <= 8192


def test_large_but_exact_numbers_are_fine():
    assert calls_of(call('{"a":-9223372036854775808,"b":1.5}', "f"))[0][2] == {
        "a": -(2**63),
        "b": 1.5,
    }


def test_arguments_are_storable_whatever_they_escape():
    assert calls_of(call('{"a":"\\ud83d\\u0000","b":"\\ud83d\\ude42"}', "f"))[0][2] == {
        "a": "\ufffd\ufffd",
        "b": "🙂",
    }


@pytest.mark.parametrize("reason", ["length", "max_tokens"])
def test_a_length_limit_spoils_the_last_call_only(reason):
    entries = [call(A, "read", index=0, id="x"), call(B, "write", index=1, id="y")]
    assert calls_of(*entries, finish=reason) == [("x", "read", PA), ("y", "write", None)]


def test_a_name_with_dots_is_kept_for_the_loop_to_refuse():
    assert (
        calls_of(call("{}", "multi_tool_use.parallel", id="x"))[0][1] == "multi_tool_use.parallel"
    )


def test_what_google_wants_back_with_a_call_is_kept():
    extra = {"google": {"thought_signature": "s"}}
    reply = reply_to(chunk(tool_calls=[{**call("{}", "f", id="x"), "extra_content": extra}]))
    assert calls_in(reply)[0].provider_data == {"extra_content": extra}
