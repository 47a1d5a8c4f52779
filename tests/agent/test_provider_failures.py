"""How real servers fail, from public reports about other clients: each is told for what it is."""

from __future__ import annotations

import pytest

from agent.errors import ProviderError
from agent.providers.failures import failure_of, readable
from tests.support.faults.streams import read


@pytest.mark.parametrize(
    ("source", "body", "code", "words"),
    [
        (
            "fox1245/NeoGraph#124",
            b'data: {"error":"STREAM_EXPLODED"}\n\ndata: [DONE]\n\n',
            "provider_overloaded",
            "STREAM_EXPLODED",
        ),
        (
            "lucasjinreal/Crane#121",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: error: out of memory\n\n'
            b"data: [DONE]\n\n",
            "provider_overloaded",
            "out of memory",
        ),
        (
            "SamSaffron/term-llm#454",
            b"event:error\ndata: upstream\ndata: timed out\n\ndata: [DONE]\n\n",
            "provider_overloaded",
            "upstream timed out",
        ),
        (
            "farzaa/clicky#132",
            b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error",'
            b'"message":"Overloaded"}}\n\n',
            "provider_overloaded",
            "Overloaded",
        ),
        (
            "dativo-io/talon#396: an error event named by its event line alone",
            b'event: error\ndata: {"reason":"x","msg":"no GPU left"}\n\ndata: [DONE]\n\n',
            "provider_overloaded",
            "no GPU left",
        ),
        (
            "infiniflow/ragflow#17292",
            b'{"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}',
            "provider_rate_limited",
            "rate limit",
        ),
        (
            "kin of infiniflow/ragflow#17292",
            b'data: {"code":500,"msg":"engine died","data":null}\n\n',
            "provider_overloaded",
            "engine died",
        ),
        (
            "preloop/preloop#117: text where a stream should be",
            b"Internal Server Error",
            "provider_incomplete",
            "only: Internal Server Error",
        ),
        (
            "kin of preloop/preloop#117: a document of another API",
            b'{"type":"message","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}',
            "provider_incomplete",
            'only: {"type":"message"',
        ),
        (
            "open-webui/open-webui#29628: it just stops",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
            "provider_incomplete",
            "broke off",
        ),
        (
            "s2-streamstore/s2-sdk-typescript#211: it stops within an event",
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"choices":[{"del',
            "provider_incomplete",
            "damaged",
        ),
        (
            "kin of earendil-works/pi#7441: usage in the middle is no end",
            b'data: {"choices":[],"usage":{"prompt_tokens":10}}\n\n'
            b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
            "provider_incomplete",
            "broke off",
        ),
        *(
            (
                f"sgl-project/sglang#4550 and others: {reason} is no end of an answer",
                b'data: {"choices":[{"delta":{"content":"Let me"}}]}\n\n'
                b'data: {"choices":[{"delta":{},"finish_reason":"%s"}]}\n\n' % reason.encode(),
                "provider_overloaded",
                reason,
            )
            for reason in ("network_error", "insufficient_system_resource", "abort", "TIMEOUT")
        ),
        *(
            (
                f"NousResearch/hermes-agent#83886: {reason}, whatever was made of it",
                b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":'
                b'{"name":"read_file","arguments":"{}"}}]},"finish_reason":"%s"}]}\n\n'
                % reason.encode(),
                "provider_bad_call",
                reason,
            )
            for reason in ("MALFORMED_FUNCTION_CALL", "function_call_filter: UNEXPECTED_TOOL_CALL")
        ),
    ],
)
@pytest.mark.parametrize("cuts", [1, 1_000_000])
def test_a_failure_inside_a_200_is_told(
    source: str, body: bytes, code: str, words: str, cuts: int
) -> None:
    with pytest.raises(ProviderError) as caught:
        read(body, cuts)
    assert caught.value.code == code
    assert words in str(caught.value)


OVERFLOWS = [
    "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens",
    "You passed 99073 input tokens and requested 32000 output tokens. However, the model's context "
    "length is only 131072 tokens. Please reduce the length of the input prompt.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "request (8588 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "total message size 10176584 exceeds limit 2097152",
    "Invalid request: Your request exceeded model token limit: 131072 (requested: 140000)",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "prompt token count of 138000 exceeds the limit of 128000",
    "Range of input length should be [1, 98304]",
    "Prompt exceeds max length",
    "length of prompt_tokens must be less than max_seq_len",
    "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000",
    "The decoder prompt (length 10034) is longer than the maximum model length of 8192.",
    "invalid params, context window exceeds limit (2013)",
    "tokens in request more than max tokens allowed",
    "messages: text content blocks: too many total text bytes: 9100000 > 9000000",
    "输入长度超过模型上下文限制",
]


@pytest.mark.parametrize("words", OVERFLOWS)
def test_a_full_context_is_recognised_in_any_words(words: str) -> None:
    """earendil-works/pi#5930, anomalyco/opencode#17746, MoonshotAI/kimi-code#476 …"""
    body = {"error": {"message": words, "type": "invalid_request_error"}}
    assert failure_of(body, 400).code == "context_overflow"
    assert failure_of(body).code == "context_overflow"


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (
            400,
            "`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens`"
            " is less than the `context_window` for this model",
            "provider_refused",
        ),
        (
            400,
            "max_tokens is too large: 100000. This model supports at most 4096",
            "provider_refused",
        ),
        (
            429,
            "Request too large for gpt-4o on tokens per min (TPM): Limit 1, Requested 9",
            "context_overflow",
        ),
        (429, "Rate limit reached for tokens per min. Limit 30000", "provider_rate_limited"),
        (413, "Payload Too Large", "context_overflow"),
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools", "provider_tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice to be set', "provider_tools"),
        (404, "No endpoints found that support tool use.", "provider_tools"),
        (400, "This model does not support parallel tool calls", "provider_refused"),
        (
            400,
            "Failed to call a function. Please adjust your prompt. See 'failed_generation'.",
            "provider_bad_call",
        ),
        (500, "error parsing tool call: raw='{\"a\"' err=unexpected end", "provider_bad_call"),
        (400, "API key not valid. Please pass a valid API key.", "provider_auth"),
        (401, "Incorrect API key provided. Tools are not supported", "provider_auth"),
        (403, "Your context length plan is forbidden", "provider_auth"),
        (
            400,
            "The response was filtered due to the prompt triggering Azure OpenAI's content "
            "management policy.",
            "provider_filtered",
        ),
        (429, "You exceeded your current quota, please check your plan", "provider_quota"),
        (429, "You exceeded your current quota. Please retry in 12.5s.", "provider_rate_limited"),
        (429, "余额不足或无可用资源包,请充值。", "provider_quota"),
        (502, "the content filter service is down", "provider_overloaded"),
        (400, "Your credit balance is too low to access the Anthropic API.", "provider_quota"),
        (498, "Flex tier capacity exceeded", "provider_overloaded"),
    ],
)
def test_refusals_are_told_apart(status: int, words: str, code: str) -> None:
    """NousResearch/hermes-agent, pydantic/pydantic-ai#703, langchain4j/langchain4j#3475 …"""
    error = failure_of({"error": {"message": words}}, status)
    assert (error.code, bool(error.hint)) == (code, True)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 1.5s. Visit", 1.5),
        ("Please try again in 20 seconds", 20),
        ("Please retry in 350ms", 0.35),
        ("wait 2 minutes", 120),
        ("retry after 99 min", 3600),
        ("Please try again in 2m59.56s.", 179.56),
        ("Quota exceeded, reset after 0h7m23s", 443),
        ("Retry-After: 12 s", 12),
        ("tokens reset: 3s", 3),
        ("wait" * 5000 + " 5 s", None),
        # times that are no wait
        ("Request timed out after waiting 600 seconds", None),
        ("It waited 60 seconds for a worker", None),
        ("still awaiting 60 s", None),
        ("upstream: connection reset after 30 s", None),
        ("The connection was reset by peer (30s)", None),
        ("try again later, 5 of you", None),
        ("slow down", None),
    ],
)
def test_a_wait_that_only_the_words_name_is_kept(words: str, seconds: float | None) -> None:
    error = failure_of({"error": {"message": words}}, 429)
    assert error.retry_after == seconds
    assert failure_of({"error": {"message": words}}, 429, 7.0).retry_after == 7.0


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        # diegosouzapw/OmniRoute#4738
        ({"message": "busy", "details": [{"@type": "RetryInfo", "retryDelay": "41s"}]}, 41),
        ({"message": "Please retry in 41.5s.", "details": [{"retryDelay": "41s"}]}, 41.5),
        ({"message": "slow down", "retry_after": 7}, 7),
        ({"message": "slow down", "retry_after_ms": 1500}, 1.5),
        ({"message": "slow down", "retry_after": 1790000000}, None),
        ({"message": "slow down", "retry_after": 7200}, 3600),
        ({"message": "slow down", "retryDelay": "7200s"}, 3600),
        ({"message": "slow down", "retry_after": True, "code": 429}, None),
    ],
)
def test_a_wait_that_a_field_names_is_kept(error: object, seconds: float | None) -> None:
    assert failure_of({"error": error}, 429).retry_after == seconds


def test_of_what_a_server_calls_its_failure_the_beginning_counts() -> None:
    """Patterns are looked for in it, whose time grows with its square."""
    far = {"message": "no", "type": f"{'x' * 3000} insufficient_quota"}
    assert failure_of({"error": far}, 429).code == "provider_rate_limited"


def test_an_error_that_comes_as_a_stream_is_read() -> None:
    body = b'event: error\ndata: {"error":{"message":"No such model","code":404}}\n\n'
    said, value = readable(body)
    assert (said, failure_of(value, 404).code) == ("", "provider_model")
