"""Bodies that no server would send, and bodies that odd servers do: always one reply or one typed
error, the same however the network cuts them, storable, and nothing broken in it can run."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.errors import ProviderError
from agent.messages import Reply, ToolCall
from agent.providers.assembler import Assembler
from agent.providers.reading import BodyReader
from agent.scrub import Scrubber

KEY = "sk-live-CANARY-7f3a"
WORDS = st.sampled_from(
    [
        *(
            "",
            "a",
            "Hel",
            "Hello",
            "Hello you",
            "\n",
            "{}",
            "{",
            "}",
            '{"path":"a"}',
            '"{}"',
            "null",
        ),
        *("<think>", "</think>", "\n<think>", "```\n", "<|channel|>analysis<|message|>", "<|end|>"),
        *(
            "[THINK]",
            "[/THINK]",
            "\ud83d",
            "\ude42",
            "\x00",
            "\u2028",
            "你好",
            KEY,
            KEY[:9],
            KEY[9:],
        ),
        *("[DONE]", "error: no", "data: {", "9" * 30, "NaN", "-1e999", "[1]", "a" * 600),
    ]
)
VALUES = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers(-2, 9) | st.floats(allow_nan=True),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("text", "type", "thinking", "summary", "content", "name", "arguments", "id"),
                    *(
                        "message",
                        "msg",
                        "code",
                        "status_code",
                        "cached_tokens",
                        "function",
                        "index",
                    ),
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


CALLS = some(
    index=st.sampled_from([0, 0, 1, None, "1"]) | VALUES,
    id=st.sampled_from(["", "a", "b", "functions.f:0", None, 7]) | VALUES,
    type=st.sampled_from(["function", None]),
    extra_content=VALUES,
    function=some(
        name=st.sampled_from(["f", "f", "g", "", None, "null"]) | WORDS, arguments=VALUES
    ),
)
PARTS = some(
    role=WORDS,
    content=VALUES,
    reasoning_content=VALUES,
    reasoning=VALUES,
    reasoning_details=st.lists(
        some(type=WORDS, index=VALUES, text=VALUES, signature=VALUES), max_size=2
    ),
    tool_calls=st.lists(CALLS, max_size=3) | CALLS | VALUES,
    function_call=some(name=WORDS, arguments=VALUES),
    refusal=VALUES,
)
REASONS = st.sampled_from(
    [None, None, None, "", "stop", "length", "tool_calls", "content_filter", "SAFETY", "error"]
)
USAGES = some(
    prompt_tokens=VALUES,
    completion_tokens=VALUES,
    total_tokens=VALUES,
    prompt_tokens_details=VALUES,
    completion_tokens_details=VALUES,
)
CHOICES = some(
    index=st.sampled_from([0, 0, 0, 1, 2, None]),
    delta=PARTS | VALUES,
    message=PARTS,
    text=VALUES,
    finish_reason=REASONS,
    usage=USAGES,
    error=VALUES,
)
CHUNKS = some(
    choices=st.lists(CHOICES, max_size=2) | VALUES,
    usage=USAGES | VALUES,
    x_groq=VALUES,
    error=st.none() | VALUES,
    message=VALUES,
    base_resp=some(status_code=VALUES, status_msg=VALUES),
)
PLAIN = st.builds(
    lambda part, reason: {"choices": [{"index": 0, "delta": part, "finish_reason": reason}]},
    PARTS,
    REASONS,
)
PAYLOADS = st.one_of(
    PLAIN.map(json.dumps),
    PLAIN.map(lambda value: json.dumps(value, ensure_ascii=False)),
    CHUNKS.map(json.dumps),
    VALUES.map(json.dumps),
    WORDS,
    st.sampled_from(["[DONE]", '"[DONE]"', "", ": ping", '{"choices":[{"del']),
)
FRAMES = st.sampled_from(
    [
        *("data: {}\n\n", "data:{}\n\n", "data: {}\n", "data: {}\r\n\r\n", "data: {}\r\r"),
        *("{}\n", "event: error\ndata: {}\n\n", "id: 1\n: x\nevent: m\ndata: {}\n\n"),
        "\ufeffdata: {}\n\n",
    ]
)
EVENTS = st.builds(
    lambda frame, payload: frame.replace("{}", payload).encode("utf-8", "surrogatepass"),
    FRAMES,
    PAYLOADS,
)
BODIES = st.lists(EVENTS | st.binary(max_size=8), max_size=8).map(b"".join) | CHUNKS.map(
    lambda value: json.dumps(value).encode()
)


def outcome(
    reads: list[bytes], *, think_open: bool, learns: bool = True
) -> Reply | tuple[type, str, str]:
    numbers = itertools.count(1)
    assembler = Assembler(
        1, lambda: f"b{next(numbers)}", think_open=think_open, scrub=Scrubber(KEY)
    )
    if not learns:
        assembler._alike._tries = 0
    reader = BodyReader(assembler)
    told: dict[str, str] = {}
    try:
        deltas = [delta for read in reads for delta in reader.feed(read)]
        deltas += reader.close()
        rest, reply = assembler.finish()
    except ProviderError as error:
        str(error).encode()
        return type(error), error.code, str(error)
    for delta in [*deltas, *rest]:
        assert delta.offset == len(told.get(delta.block_id, ""))
        assert 0 < len(delta.delta) <= 512
        told[delta.block_id] = told.get(delta.block_id, "") + delta.delta
    check(reply, told)
    return reply


def check(reply: Reply, told: dict[str, str]) -> None:
    assert "CANARY" not in "".join(told.values())
    for block in reply.blocks:
        text = told.get(block.block_id, "")
        text.encode()
        assert "\x00" not in text
        if not isinstance(block, ToolCall):
            assert block.text == text
            continue
        if block.arguments is None:
            assert block.problem
        stored = json.dumps(block.arguments, allow_nan=False)
        stored.encode()
        assert "\\u0000" not in stored
        assert "\\ud83d" not in stored.replace("\\ud83d\\ude42", "")
        assert "CANARY" not in f"{stored}{block.name}{block.tool_call_id}{block.provider_data}"


def same_for_any_cut(body: bytes, cuts: set[int], think_open: bool) -> None:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    whole = outcome([body], think_open=think_open)
    assert outcome(pieces, think_open=think_open) == whole
    assert outcome([bytes([each]) for each in body], think_open=think_open) == whole


@given(BODIES, st.sets(st.integers(0, 5000), max_size=8), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_body_is_one_reply_or_one_error_however_it_is_cut(
    body: bytes, cuts: set[int], think_open: bool
) -> None:
    same_for_any_cut(body, cuts, think_open)


@pytest.mark.long
@pytest.mark.timeout(1800)
@given(BODIES, st.sets(st.integers(0, 5000), max_size=8), st.booleans())
@settings(max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_same_for_long(body: bytes, cuts: set[int], think_open: bool) -> None:
    same_for_any_cut(body, cuts, think_open)


TEXTS = st.text(max_size=6) | st.sampled_from(
    ["word ", '"', "\\", "<think>", "</think>", KEY, KEY[:8], "a", "ab", "abcd", "🙂"]
)
LIKE = st.lists(
    st.tuples(
        st.sampled_from(["delta", "delta", "delta", "message"]),
        TEXTS,
        st.sampled_from([0, 0, 0, 0, 1, None]),
        st.sampled_from(["", "", "", "stop"]),
    ),
    max_size=14,
)


@given(LIKE, st.booleans(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_chunks_that_are_alike_mean_the_same_when_each_is_decoded(
    pieces: list[tuple[str, str, int | None, str]], plain: bool, think_open: bool
) -> None:
    values = [
        {"choices": [{"index": index, key: {"content": text}, "finish_reason": finish or None}]}
        for key, text, index, finish in pieces
    ]
    events = [f"data: {json.dumps(value, ensure_ascii=plain)}\n\n" for value in values]
    told = [*events, "data: [DONE]\n\n", *events[:1]]
    reads = [event.encode("utf-8", "surrogatepass") for event in told]
    in_pairs = [b"".join(reads[at : at + 2]) for at in range(0, len(reads), 2)]
    for cut in ([b"".join(reads)], reads, in_pairs):
        decoded = outcome(cut, think_open=think_open, learns=False)
        assert outcome(cut, think_open=think_open) == decoded


HEAD, TAIL = b'data: {"choices":[{"delta":{"content":"', b'"}}]}'
START = b"".join(HEAD + text + TAIL + b"\n\n" for text in (b"One", b"two", b"three"))
END = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "read",
    [
        HEAD + b"a" + TAIL + b"\n\n" + HEAD + b"b" + TAIL + b"\n\n",
        HEAD + b"a" + TAIL + b"\n\n: ping\n\n" + HEAD + b"b" + TAIL + b"\n\n",
        HEAD + b"a" + TAIL + b"\n\n\n" + HEAD + b"b" + TAIL + b"\n\n",
        HEAD + b"a" + TAIL + b"\nid: 7\n\n" + HEAD + b"b" + TAIL + b"\n\n",
        HEAD + b"a\\n" + TAIL + b"\n\n" + HEAD + b'\\"b' + TAIL + b"\n\n",
        HEAD + b"a\n" + TAIL + b"\n\n",
        HEAD + b"a\r" + TAIL + b"\n\n",
        HEAD + b"\xc3" + TAIL + b"\n\n" + HEAD + b"\xa4" + TAIL + b"\n\n",
        HEAD + b"\xff" + TAIL + b"\n\n",
        HEAD + TAIL + b"\n\n",
        HEAD + TAIL[1:] + b"\n\n",
        HEAD + b"a" + TAIL + b"\n\nevent: error\n" + HEAD + b"b" + TAIL + b"\n\n",
        HEAD + b"a\x00" + TAIL + b"\n\n",
    ],
)
def test_what_looks_alike_as_a_whole_means_what_its_payloads_mean(read: bytes) -> None:
    long = START * 40
    for reads in ([START, read, END], [long + read + END], [long[:-5], long[-5:] + read, END]):
        parsed = outcome([b"".join(reads)], think_open=False, learns=False)
        assert outcome(reads, think_open=False) == parsed
