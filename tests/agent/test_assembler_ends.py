"""Chunks to replies: ends, errors and usage, and whatever else may come."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.messages import Usage
from agent.providers.failures import failure_of
from tests.support.chunks import (
    A,
    assemble,
    assembler,
    call,
    calls_in,
    check_deltas,
    chunk,
    event,
    reply_to,
    text_of,
)


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


USED = event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})


def test_usage_alone_ends_what_was_said_as_its_last_word():
    said = event(chunk(content="a"))
    assert text_of(assemble([said, USED])[1]) == "a"
    for stream in ([USED], [said, USED, said], [USED, said]):
        with pytest.raises(ProviderIncomplete):
            assemble(stream)


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
