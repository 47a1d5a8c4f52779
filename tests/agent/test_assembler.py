"""Chunks to replies: the odd streams of real providers, and whatever else may come."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.events import AssistantDelta, Delta, ReasoningDelta, ToolCallDelta
from agent.messages import Reasoning, Reply, Text, ToolCall, Usage
from agent.providers.assembler import Assembler
from agent.providers.failures import failure_of
from agent.providers.scrub import Scrubber
from agent.providers.sse import SSEParser
from tests.support import cases


def assembler(**options: Any) -> Assembler:
    numbers = itertools.count(1)
    return Assembler(3, lambda: f"b{next(numbers)}", **options)


def assemble(reads: list[bytes], **options: Any) -> tuple[list[Delta], Reply]:
    """The path of the bytes in production, without the network."""
    parser, target = SSEParser(), assembler(**options)
    deltas = [delta for read in reads for delta in target.feed(parser.feed(read))]
    deltas += target.feed(parser.close())
    rest, reply = target.finish()
    return deltas + rest, reply


def event(value: Any) -> bytes:
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n"


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call(arguments: Any = None, name: str | None = None, **head: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        **head,
        "function": {key: value for key, value in function.items() if value is not None},
    }


def reply_to(*values: Any, **options: Any) -> Reply:
    """One event per value, `[DONE]` at the end, every delta checked."""
    deltas, reply = assemble([event(value) for value in values] + [event(b"[DONE]")], **options)
    check_deltas(deltas, reply)
    return reply


def calls_of(*entries: dict[str, Any], finish: str = "tool_calls") -> list[tuple[str, str, Any]]:
    """Each entry in a chunk of its own -> (id, name, arguments) of the calls."""
    reply = reply_to(*(chunk(tool_calls=[entry]) for entry in entries), chunk(finish))
    return [(c.tool_call_id, c.name, c.arguments) for c in calls_in(reply)]


def calls_in(reply: Reply) -> list[ToolCall]:
    return [block for block in reply.blocks if isinstance(block, ToolCall)]


def text_of(reply: Reply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, Text))


def reasoning_of(reply: Reply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, Reasoning))


def check_deltas(deltas: list[Delta], reply: Reply) -> None:
    """The deltas of a block are gapless, short, storable, and add up to its text. Only text and
    reasoning may turn out to be something else, and then they come once more."""
    told: dict[str, str] = {}
    for delta in deltas:
        assert delta.step == 3
        assert 0 < len(delta.delta) <= 512
        assert delta.offset == len(told.get(delta.block_id, ""))
        delta.delta.encode()
        assert "\x00" not in delta.delta
        told[delta.block_id] = told.get(delta.block_id, "") + delta.delta
    for block in reply.blocks:
        if isinstance(block, Text | Reasoning):
            assert told.pop(block.block_id) == block.text
        else:
            raw = told.pop(block.block_id, "")
            assert block.arguments is not None or raw.startswith(block.raw_arguments)
            assert (block.arguments is None) == bool(block.problem)
    kept = {type(delta) for delta in deltas if delta.block_id not in told}
    again = {type(delta) for delta in deltas if delta.block_id in told}
    assert ToolCallDelta not in again
    assert not again or kept & {AssistantDelta, ReasoningDelta}
    assert [call.index for call in calls_in(reply)] == list(range(len(calls_in(reply))))


# ── the collected cases ───────────────────────────────────────────────────────────────────────


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


# ── deltas ────────────────────────────────────────────────────────────────────────────────────


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


# ── tool calls ────────────────────────────────────────────────────────────────────────────────

A, B = '{"path":"a"}', '{"path":"b"}'
PA, PB = {"path": "a"}, {"path": "b"}
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


# ── text and reasoning ────────────────────────────────────────────────────────────────────────


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


# ── ends, errors, usage ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("reason", [None, "", "null"])
def test_done_without_a_reason_gets_one(reason):
    assert reply_to(chunk(reason, content="a")).finish_reason == "stop"
    assert reply_to(chunk(reason, tool_calls=[call(A, "read")])).finish_reason == "tool_calls"


@pytest.mark.parametrize(
    "stream", [b"", b"data: hello\n\n", event(chunk(content="a")), event({"choices": []})]
)
def test_an_end_without_reason_and_done_is_incomplete(stream):
    with pytest.raises(ProviderIncomplete):
        assemble([stream])


def test_a_damaged_chunk_is_not_skipped():
    with pytest.raises(ProviderIncomplete, match="damaged"):
        reply_to(chunk(content="a"), b'{"choices":[{"delta"', chunk("stop"))


@pytest.mark.parametrize(
    "noise",
    [b"", b"ping", b"null", b"5", {"type": "ping"}, {}, {"choices": None}, {"choices": [5]}],
)
def test_keep_alive_texts_are_skipped(noise):
    assert text_of(reply_to(chunk(content="a"), noise, chunk("stop"))) == "a"


def test_nothing_counts_after_done():
    _deltas, reply = assemble(
        [event(chunk(content="a")), event(b" [DONE] "), event(chunk(content="b"))]
    )
    assert text_of(reply) == "a"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ({"error": {"message": "x", "code": 429}}, ProviderUnavailable, "provider_rate_limited"),
        (
            {"error": {"message": "x", "type": "overloaded_error"}},
            ProviderUnavailable,
            "provider_overloaded",
        ),
        ({"error": "Internal error"}, ProviderUnavailable, "provider_overloaded"),
        (
            {"error": {"message": "x", "type": "invalid_request_error"}},
            ProviderRefused,
            "provider_refused",
        ),
        ({"error": {"message": "x", "code": "model_not_found"}}, ProviderRefused, "provider_model"),
        (
            {"error": {"message": "x", "code": "insufficient_quota"}},
            ProviderRefused,
            "provider_quota",
        ),
        ({"error": {"message": "Invalid API key"}}, ProviderRefused, "provider_auth"),
        ({"object": "error", "message": "x", "code": 400}, ProviderRefused, "provider_refused"),
        ({"detail": [{"msg": "x", "loc": ["body"]}]}, ProviderUnavailable, "provider_overloaded"),
        ([{"error": {"code": 503, "message": "x"}}], ProviderUnavailable, "provider_overloaded"),
        (
            {"choices": [{"error": {"message": "x", "code": 502}}]},
            ProviderUnavailable,
            "provider_overloaded",
        ),
        (
            {"choices": [{"finish_reason": "error", "delta": {}}]},
            ProviderUnavailable,
            "provider_overloaded",
        ),
        (
            {"error": {"message": "This model's maximum context length is 8 tokens", "code": 400}},
            ProviderRefused,
            "context_overflow",
        ),
    ],
)
def test_an_error_in_a_stream_has_a_type_and_a_code(error, kind, code):
    with pytest.raises(kind) as caught:
        reply_to(chunk(content="half"), error)
    assert caught.value.code == code
    assert caught.value.hint


def test_what_the_upstream_of_a_router_said_is_kept():
    error = {
        "error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": "no GPU"}}
    }
    assert "no GPU" in str(failure_of(error))


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 7}, (10, 7, 0, 0)),
        ({"input_tokens": 10, "output_tokens": 7}, (10, 7, 0, 0)),
        ({"prompt_tokens": 10, "total_tokens": 17}, (10, 7, 0, 0)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            (10, 7, 3, 4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 7, "prompt_cache_hit_tokens": 4},
            (10, 7, 0, 4),
        ),
        (
            {"prompt_tokens": 10.0, "completion_tokens": 7, "prompt_tokens_details": None},
            (10, 7, 0, 0),
        ),
    ],
)
def test_usage_in_any_shape(usage, counts):
    for last in (
        {"choices": [], "usage": usage},
        {"choices": [{"usage": usage}]},
        {"x_groq": {"usage": usage}},
    ):
        found = reply_to(chunk("stop", content="a"), last, {"choices": [], "usage": None}).usage
        assert (
            found.input_tokens,
            found.output_tokens,
            found.reasoning_tokens,
            found.cached_tokens,
        ) == counts
        assert not found.estimated


@pytest.mark.parametrize(
    "usage", [{}, {"prompt_tokens": 0, "completion_tokens": 0}, {"prompt_tokens": "x"}, "many"]
)
def test_usage_that_says_nothing_is_estimated(usage):
    reply = reply_to(
        chunk(reasoning="12345678"),
        {**chunk("stop", content="1234"), "usage": usage},
        input_chars=41,
    )
    assert reply.usage == Usage(
        input_tokens=11, output_tokens=3, reasoning_tokens=2, estimated=True
    )


def test_a_reply_without_end_is_refused():
    target = assembler()
    payloads = [json.dumps(chunk(content="x" * 500_000)).encode()] * 10
    with pytest.raises(ProviderRefused) as caught:
        target.feed(payloads)
    assert caught.value.code == "reply_too_large"


def test_too_many_calls_are_refused():
    entries = [call("{}", "f", index=number, id=f"c{number}") for number in range(129)]
    with pytest.raises(ProviderRefused) as caught:
        reply_to(chunk(tool_calls=entries))
    assert caught.value.code == "reply_too_large"


# ── our key ───────────────────────────────────────────────────────────────────────────────────

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
    ] == [
        "ask ",
        "a ri",
        "sk-",
        "sk-sk-live",
        "\U0001f600 ",
    ]
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


# ── whatever else may come ────────────────────────────────────────────────────────────────────

json_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["{", '{"a":1}', "\ud83d"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "content",
                    "text",
                    "tool_calls",
                    "index",
                    "id",
                    "type",
                    "function",
                    "name",
                    "arguments",
                    "function_call",
                    "reasoning",
                    "reasoning_details",
                    "usage",
                    "error",
                    "finish_reason",
                    "prompt_tokens",
                    "thinking",
                    "refusal",
                    "detail",
                    "code",
                    "x_groq",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
odd_part = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("content", "tool_calls", "reasoning", "function_call", "refusal"), json_value
    ),
)
odd_call = st.fixed_dictionaries(
    {},
    optional={
        "index": st.integers(0, 2) | json_value,
        "id": st.sampled_from(["", "a", "b", None]),
        "type": st.sampled_from(["function", None]),
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["", "f", "g", None]),
                "arguments": st.sampled_from(["", "{", '{"a":1}', "}", "\ud83d", "\ude42"])
                | json_value,
            },
        ),
    },
)
odd_chunk = st.one_of(
    json_value,
    odd_part.map(lambda part: {"choices": [{"delta": part}]}),
    odd_part.map(lambda part: {"choices": [{"message": part}]}),
    st.lists(odd_call, max_size=4).map(lambda entries: chunk(tool_calls=entries)),
    st.sampled_from(
        [chunk("stop"), chunk("length"), chunk(content="<think>"), chunk(content="</think>")]
    ),
).map(lambda value: json.dumps(value).encode())


@given(st.lists(odd_chunk | st.binary(max_size=20), max_size=8), st.booleans())
def test_no_input_raises_anything_but_a_provider_error(payloads, together):
    stream = [event(payload.replace(b"\n", b"").replace(b"\r", b"")) for payload in payloads] + [
        event(b"[DONE]")
    ]
    try:
        deltas, reply = assemble([b"".join(stream)] if together else stream)
    except ProviderError as error:
        str(error).encode()
    else:
        check_deltas(deltas, reply)
        json.dumps(
            calls_in(reply)[0].arguments if calls_in(reply) else None, allow_nan=False
        ).encode()


def test_deep_nesting_ends_in_a_typed_error():
    for payload in (b'{"choices":' * 50_000, b'{"error":' + b"[" * 900 + b"]" * 900 + b"}"):
        with pytest.raises(ProviderError):
            reply_to(payload)
