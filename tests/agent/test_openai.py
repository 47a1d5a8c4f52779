"""The provider against a real server: replies, failures, time, and what is sent."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any

import pytest

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.events import AssistantDelta, Delta
from agent.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    Reply,
    Text,
    ToolCall,
    ToolDefinition,
    ToolMessage,
    UserMessage,
)
from agent.providers import ModelRequest
from agent.providers.assembler import Assembler
from agent.providers.client import Client, Pool, make_client
from agent.providers.openai import DONE_SECONDS, TAIL_SECONDS, OpenAIProvider, Patience
from agent.providers.quirks import Quirks
from tests.support import cases
from tests.support.provider_server import SSE, ProviderServer, Request, Scene, delta, serving
from tests.support.stub import StubServer

KEY = "sk-live-CANARY-7f3a"
TOOL = ToolDefinition(name="read_file", description="read", parameters={"type": "object"})


@pytest.fixture
async def client() -> AsyncIterator[Pool]:
    async with make_client() as client:
        yield client


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with ProviderServer() as server:
        yield server


@pytest.fixture
async def stub() -> AsyncIterator[StubServer]:
    async with StubServer() as stub:
        yield stub


def request(*messages: Message, tools: tuple[ToolDefinition, ...] = (TOOL,)) -> ModelRequest:
    numbers = itertools.count(1)
    return ModelRequest(
        system="You are careful.",
        messages=messages or (UserMessage(text="Hi"),),
        tools=tools,
        step=1,
        new_block_id=lambda: f"b{next(numbers)}",
    )


def provider(client: Client, base_url: str, **options: Any) -> OpenAIProvider:
    return OpenAIProvider(client, base_url=base_url, model="m", api_key=KEY, **options)


async def ask(target: OpenAIProvider, *messages: Message) -> tuple[list[Delta], Reply]:
    items = [item async for item in target.stream(request(*messages))]
    deltas = [item for item in items if not isinstance(item, Reply)]
    (reply,) = [item for item in items if isinstance(item, Reply)]
    assert items[-1] is reply
    return deltas, reply


async def failure(target: OpenAIProvider, *messages: Message) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(target, *messages)
    error = caught.value
    assert "CANARY" not in f"{error} {error.hint}"
    assert error.__cause__ is None
    assert error.__suppress_context__
    return error


def text(reply: Reply) -> str:
    return AssistantMessage(blocks=reply.blocks).text


class Flood:
    """A server whose bytes are always there before they are asked for: reading never suspends."""

    status = 200
    headers: dict[str, str] = {}

    async def post(self, *request: object) -> Flood:
        self._enough = time.monotonic() + 2  # the test fails rather than hangs
        return self

    async def read(self) -> bytes:
        return b": ping\n\n" if time.monotonic() < self._enough else b""

    def at_end(self) -> bool:
        return False

    def close(self) -> None: ...

    async def aclose(self) -> None: ...


# ── replies ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("stream", [True, False])
async def test_it_works_streamed_and_not(client, server, stream):
    deltas, reply = await ask(provider(client, server.url("normal"), stream=stream))
    assert "".join(item.delta for item in deltas) == text(reply) == "Hello."
    assert server.requests[0].body["stream"] is stream
    assert ("stream_options" in server.requests[0].body) is stream
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("scene", ["document", "disguised", "lingering", "chatty", "slow"])
async def test_the_body_decides_how_it_is_read_and_where_it_ends(
    client, server, scene, monkeypatch
):
    monkeypatch.setattr("agent.providers.openai.TAIL_SECONDS", 0.1)  # or these would wait for 2 s
    _, reply = await ask(provider(client, server.url(scene)))
    assert text(reply).startswith(("Hello.", "0 1 2"))


async def test_deltas_arrive_before_the_end(client, server):
    stream = provider(client, server.url("hang")).stream(request())
    assert await anext(stream) == AssistantDelta(step=1, block_id="b1", offset=0, delta="Hel")
    await stream.aclose()


async def test_json_lines_are_read_too(client):
    async def lines(request: Request) -> None:
        await request.answer(
            b"\n".join(json.dumps(d).encode() for d in (delta("Hi"), delta("", "stop")))
        )

    async with ProviderServer(lines=lines) as server:
        assert text((await ask(provider(client, server.url("lines"))))[1]) == "Hi"


async def test_a_connection_is_used_again(client, server):
    target = provider(client, server.url("normal"))
    for _ in range(3):
        await ask(target)
    assert server.connections == 1


@pytest.mark.parametrize(
    "path", ["/normal/v1/", "/normal/v1/chat/completions", "/normal/v1?api-version=1"]
)
async def test_base_urls_as_people_write_them(client, server, path):
    target = provider(client, f" http://127.0.0.1:{server.port}{path} ")
    assert text((await ask(target))[1]) == "Hello."


async def test_no_key_means_no_header(client, server):
    await ask(OpenAIProvider(client, base_url=server.url("normal"), model="m"))
    assert "authorization" not in server.requests[0].headers


async def test_another_header_can_carry_the_key(client, server):
    await ask(provider(client, server.url("normal"), quirks=Quirks(key_header="api-key")))
    assert server.requests[0].headers["api-key"] == KEY
    assert "authorization" not in server.requests[0].headers


async def test_a_proxy_of_the_shell_is_not_asked_for_this_machine(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with make_client() as client:
        assert text((await ask(provider(client, server.url("normal"))))[1]) == "Hello."


async def test_a_proxy_of_the_shell_is_asked_for_other_machines(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{server.port}")
    async with make_client() as client:
        error = await failure(provider(client, "http://model.invalid/v1"))
    assert error.status == 404
    assert server.requests[0].path.startswith("http://model.invalid/")


async def test_hosts_that_the_shell_excepts_are_asked_without_its_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", ".invalid, other.test")
    async with make_client() as client:
        error = await failure(provider(client, "http://model.invalid/v1"))
    assert "has no address" in str(error)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:9", "socks5h://proxy.invalid"])
async def test_a_proxy_that_speaks_no_http_is_named_in_words(monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    async with make_client() as client:
        error = await failure(provider(client, "http://model.invalid/v1"))
    assert isinstance(error, ProviderRefused)
    assert "proxy for model.invalid" in str(error)


# ── what it costs ─────────────────────────────────────────────────────────────────────────────


class Ready(Flood):
    """A reply of so many tokens, so many in each read."""

    def __init__(self, tokens: int, together: int) -> None:
        texts = [f"data: {json.dumps(delta(f'{n:04d} '))}\n\n".encode() for n in range(tokens)]
        reads = [b"".join(texts[at : at + together]) for at in range(0, tokens, together)]
        end = f"data: {json.dumps(delta('', 'stop'))}\n\ndata: [DONE]\n\n".encode()
        self._reads = iter([*reads, end, b""])

    async def read(self) -> bytes:
        return next(self._reads)


async def calls_of(tokens: int, together: int) -> int:
    """Calls of functions, Python's and C's, for a whole reply."""
    made = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    target = provider(Ready(tokens, together), "http://model.test/v1")
    sys.setprofile(note)
    try:
        await ask(target)
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize(("together", "calls"), [(1, 75), (100, 6)])
async def test_a_token_costs_few_calls_between_the_socket_and_its_delta(together, calls):
    few, many = await calls_of(100, together), await calls_of(1100, together)
    assert (many - few) / 1000 < calls


# ── failures ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scene", "kind", "code", "words"),
    [
        ("unauthorized", ProviderRefused, "provider_auth", "401"),
        ("limited", ProviderUnavailable, "provider_rate_limited", "Slow down"),
        (
            "proxy",
            ProviderUnavailable,
            "provider_overloaded",
            "web page instead of a reply: 502 Bad Gateway",
        ),
        ("login", ProviderRefused, "provider_bad_reply", "Please sign in"),
        ("nowhere", ProviderRefused, "provider_model", "no such route"),
        ("cut", ProviderIncomplete, "provider_incomplete", "broke off"),
        ("short", ProviderIncomplete, "provider_incomplete", "broke off"),
        ("damaged", ProviderIncomplete, "provider_incomplete", "damaged"),
        ("truncated", ProviderIncomplete, "provider_incomplete", "damaged"),
        ("dropped", ProviderUnavailable, "provider_unreachable", "closed the connection"),
        ("malformed", ProviderUnavailable, "provider_unreachable", "closed the connection"),
        ("flood", ProviderRefused, "reply_too_large", "too large"),
    ],
)
async def test_failures_are_typed_and_say_what_happened(
    client, server, scene, kind, code, words, monkeypatch
):
    monkeypatch.setattr("agent.providers.reading.MAX_BODY_BYTES", 1_000_000)  # bounded, but quick
    error = await failure(provider(client, server.url(scene)))
    assert (type(error), error.code) == (kind, code)
    assert words in str(error)
    assert not error.adapted


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("2", 2, 2),
        ("0.5", 0.5, 0.5),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0),
        ("soon", None, None),
        ("-3", 0, 0),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 1000000000.0, 10000000000.0),
        ("nan", None, None),
        ("", None, None),
    ],
)
async def test_retry_after_in_every_form(client, value, least, most):
    async def wait(request: Request) -> None:
        await request.answer({"error": "later"}, 503, {"retry-after": value})

    async with ProviderServer(wait=wait) as server:
        found = (await failure(provider(client, server.url("wait")))).retry_after
    assert found == least if least is None else least <= found <= most


@pytest.mark.parametrize(
    ("url", "kind", "code"),
    [
        ("http://model.invalid/v1", ProviderUnavailable, "provider_unreachable"),
        ("model/v1", ProviderRefused, "provider_url"),
        ("ftp://127.0.0.1/v1", ProviderRefused, "provider_url"),
        ("http://127.0.0.1:999999/v1", ProviderRefused, "provider_url"),
        ("", ProviderRefused, "provider_url"),
    ],
)
async def test_addresses_that_lead_nowhere(client, url, kind, code):
    error = await failure(provider(client, url))
    assert (type(error), error.code) == (kind, code)
    assert "base URL" in f"{error} {error.hint}"


async def test_nobody_listens(client):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        error = await failure(provider(client, f"http://user:{KEY}@127.0.0.1:{port}/v1"))
    assert (type(error), error.code) == (ProviderUnavailable, "provider_unreachable")
    assert f"127.0.0.1:{port}" in str(error)


async def test_tls_where_there_is_none(client):
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        error = await failure(provider(client, f"https://127.0.0.1:{port}/v1"))
    assert (type(error), error.code) == (ProviderRefused, "provider_tls")


async def test_credentials_in_the_address_are_used_and_never_told(client, server):
    url = server.url("normal").replace("://", "://user:CANARY@")
    await ask(OpenAIProvider(client, base_url=url, model="m"))
    assert server.requests[0].headers["authorization"] == "Basic dXNlcjpDQU5BUlk="
    await failure(OpenAIProvider(client, base_url=url.replace("normal", "dropped"), model="m"))


@pytest.mark.parametrize("key", ["two\nlines", "ключ"])
async def test_a_key_that_no_header_can_carry(client, server, key):
    target = OpenAIProvider(client, base_url=server.url("normal"), model="m", api_key=key)
    assert (await failure(target)).code == "provider_url"


@pytest.mark.parametrize(
    ("scene", "words"), [("mute", "did not answer within 0.1"), ("hang", "said nothing for 0.1")]
)
async def test_silence_ends(client, server, scene, words):
    limits = {"first_byte_seconds": 0.1, "idle_seconds": 0.1}
    error = await failure(provider(client, server.url(scene), **limits))
    assert (type(error), error.code) == (ProviderUnavailable, "provider_timeout")
    assert words in str(error)


async def test_whoever_waits_for_a_flood_can_still_give_up():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await ask(provider(Flood(), "http://model.test/v1"))


GZIP = SSE | {"content-encoding": "gzip"}


async def test_a_packed_reply_that_nobody_asked_for_is_unpacked(client):
    async def packed(request: Request) -> None:
        pack = zlib.compressobj(wbits=31)
        text = b"".join(
            f"data: {json.dumps(d)}\n\n".encode() for d in (delta("Hi"), delta("", "stop"))
        )
        await request.answer(pack.compress(text) + pack.flush(), headers=GZIP)

    async with ProviderServer(packed=packed) as server:
        assert text((await ask(provider(client, server.url("packed"))))[1]) == "Hi"


async def test_compressed_bytes_that_say_nothing_are_silence(client):
    async def empty(request: Request) -> None:
        await request.head(200, GZIP)
        await request.chunk(b"\x1f\x8b\x08\0\0\0\0\0\0\xff")  # a header, then empty blocks
        while not request.writer.is_closing():
            await request.chunk(b"\0\0\0\xff\xff" * 1000)

    async with ProviderServer(empty=empty) as server:
        error = await failure(provider(client, server.url("empty"), first_byte_seconds=0.1))
    assert error.code == "provider_timeout"


async def test_a_cookie_is_not_kept(client):
    async def sweet(request: Request) -> None:
        head = {"set-cookie": "a=b; Path=/"}
        await request.answer({"choices": [{"message": {"content": "Hi"}}]}, headers=head)

    async with ProviderServer(sweet=sweet) as server:
        for _ in range(2):
            await ask(provider(client, server.url("sweet")))
        assert "cookie" not in server.requests[1].headers


async def test_a_redirect_is_told_and_not_followed(client, server):
    async def moved(request: Request) -> None:
        await request.answer(b"", 308, {"location": server.url("normal")})

    async with ProviderServer(moved=moved) as other:
        error = await failure(provider(client, other.url("moved")))
    assert error.code == "provider_redirect"
    assert server.url("normal") in str(error)
    assert not server.requests


def test_a_finish_reason_that_comes_too_soon_ends_nothing():
    """Some servers write one into every chunk, some into the first, before they think."""
    now = 0.0
    target = Assembler(1, lambda: "b")
    patience = Patience(60.0, lambda: now)

    def waits(content: str, finish: str | None = "stop", *, done: bool = False) -> float | None:
        target.feed([json.dumps(delta(content, finish)).encode(), *([b"[DONE]"] if done else [])])
        until = patience.until(target)
        return None if until is None else until - now

    assert waits("") == 60
    now += 50
    assert waits("a") == TAIL_SECONDS
    now += 1.5
    assert waits("b") == TAIL_SECONDS
    now += 1.5
    assert waits("", None) == TAIL_SECONDS - 1.5
    now += 1.5
    assert waits("", None) is None
    assert waits("c", done=True) == pytest.approx(DONE_SECONDS)


# ── leaving ───────────────────────────────────────────────────────────────────────────────────


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  (the server's counters are no events)
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("scene", ["hang", "slow", "chatty"])
async def test_closing_the_stream_closes_the_connection(client, server, scene):
    stream = provider(client, server.url(scene)).stream(request())
    await anext(stream)
    await stream.aclose()
    await until(lambda: server.closed == 1)


@pytest.mark.parametrize("scene", ["mute", "hang"])
async def test_cancelling_closes_the_connection(client, server, scene):
    task = asyncio.create_task(ask(provider(client, server.url(scene))))
    await until(lambda: len(server.requests) == 1)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: server.closed == 1)


def test_the_server_can_run_in_a_thread():
    async def main(url: str) -> str:
        async with make_client() as client:
            return text((await ask(provider(client, url)))[1])

    with serving(ProviderServer()) as server:
        assert asyncio.run(main(server.url("normal"))) == "Hello."


# ── what is sent ──────────────────────────────────────────────────────────────────────────────


def calling(*calls: ToolCall, thought: str = "") -> AssistantMessage:
    thoughts = (Reasoning(block_id="r", text=thought),) if thought else ()
    return AssistantMessage(blocks=(*thoughts, *calls))


def call(tool_call_id: str, **changes: Any) -> ToolCall:
    fields: dict[str, Any] = {"name": "read_file", "arguments": {"path": "a.txt"}, "index": 0}
    return ToolCall(block_id="b", tool_call_id=tool_call_id, **(fields | changes))


def result(tool_call_id: str, content: str = "AAA") -> ToolMessage:
    return ToolMessage(tool_call_id=tool_call_id, name="read_file", content=content)


async def sent(
    client: Client, server: ProviderServer, *messages: Message, **options: Any
) -> list[dict[str, Any]]:
    await ask(provider(client, server.url("normal"), **options), *messages)
    wire: list[dict[str, Any]] = server.requests[-1].body["messages"]
    return wire


async def test_history_is_what_strict_servers_accept(client, server):
    messages = await sent(
        client,
        server,
        UserMessage(text="Go"),
        calling(
            call("x"),
            call("y", arguments=None, raw_arguments="[", problem="no", name="a.b c"),
            call("z" * 60, arguments={}),
            thought="hm",
        ),
        result("z" * 60, ""),
        result("x"),
        result("stray"),
        AssistantMessage(blocks=(Text(block_id="t", text="So."),)),
        AssistantMessage(blocks=(Reasoning(block_id="t", text="nothing said"),)),
    )
    assert [m["role"] for m in messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "tool",
        "assistant",
    ]
    calls = messages[2]["tool_calls"]
    assert [m["tool_call_id"] for m in messages[3:6]] == [c["id"] for c in calls]
    assert [json.loads(c["function"]["arguments"]) for c in calls] == [{"path": "a.txt"}, {}, {}]
    assert [c["function"]["name"] for c in calls] == ["read_file", "a_b_c", "read_file"]
    assert all(0 < len(c["id"]) <= 40 for c in calls)
    assert [m["content"] for m in messages[3:5]] == [
        "AAA",
        "The call was interrupted; its outcome is unknown.",
    ]
    assert messages[5]["content"]
    assert messages[2]["content"] is None
    assert "hm" not in json.dumps(messages)


async def test_quirks_change_what_is_sent(client, server):
    quirks = Quirks(
        empty_content="",
        reasoning_field="reasoning_content",
        system_role="user",
        short_ids=True,
        dropped=("top_p",),
    )
    messages = await sent(
        client,
        server,
        UserMessage(text="Go"),
        calling(call("call_1"), thought="hm"),
        result("call_1"),
        quirks=quirks,
        options={"top_p": 1, "temperature": 0},
    )
    assert [m["role"] for m in messages] == ["user", "assistant", "tool"]
    assert messages[0]["content"] == "You are careful.\n\nGo"
    assert messages[1]["content"] == ""
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"]
    assert len(messages[2]["tool_call_id"]) == 9
    assert server.requests[-1].body["temperature"] == 0
    assert "top_p" not in server.requests[-1].body


async def test_opaque_data_goes_back_to_its_provider(client, server):
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    details = {"reasoning_details": [{"signature": "s"}]}
    thought = Reasoning(block_id="r", text="hm", provider_data=details)
    message = AssistantMessage(blocks=(thought, call("x", provider_data=extra)))
    messages = await sent(client, server, UserMessage(text="Go"), message, result("x"))
    assert messages[2]["reasoning_details"] == details["reasoning_details"]
    assert messages[2]["tool_calls"][0]["extra_content"] == extra["extra_content"]


async def test_text_that_no_encoder_takes_is_cleaned(client, server):
    messages = await sent(client, server, UserMessage(text="a\ud83d"))
    assert messages[1]["content"] == "a\ufffd"


# ── refusals that teach ───────────────────────────────────────────────────────────────────────


def strict(refusal: Any, refuses: Callable[[dict[str, Any]], bool]) -> Scene:
    async def scene(request: Request) -> None:
        if refuses(request.body):
            await request.answer(refusal, 400)
        else:
            await request.head(200, {"content-type": "text/event-stream"})
            await request.events(delta("Hello."), delta("", "stop"), "[DONE]")
            await request.end()

    return scene


def nested(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **fields}}


def contents(body: dict[str, Any]) -> list[Any]:
    return [m["content"] for m in body["messages"] if m["role"] == "assistant"]


@pytest.mark.parametrize(
    ("refusal", "refuses", "learnt"),
    [
        (
            nested("Unrecognized request argument: stream_options"),
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            nested("Unknown parameter.", param="stream_options"),
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            {
                "detail": [
                    {"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}
                ]
            },
            lambda b: "stream_options" in b,
            {"dropped": ("stream_options",)},
        ),
        (
            nested("parallel_tool_calls is not supported"),
            lambda b: "parallel_tool_calls" in b,
            {"dropped": ("parallel_tool_calls",)},
        ),
        (
            nested("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            lambda b: "max_tokens" in b,
            {"renamed": {"max_tokens": "max_completion_tokens"}},
        ),
        (
            nested("invalid message content type: <nil>"),
            lambda b: None in contents(b),
            {"empty_content": ""},
        ),
        (
            nested("The `reasoning_content` in the thinking mode must be passed back to the API."),
            lambda b: any(
                m["role"] == "assistant" and "reasoning_content" not in m for m in b["messages"]
            ),
            {"reasoning_field": "reasoning_content"},
        ),
        (
            nested("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."),
            lambda b: any(len(m.get("tool_call_id", "123456789")) != 9 for m in b["messages"]),
            {"short_ids": True},
        ),
        (
            nested("System role not supported"),
            lambda b: b["messages"][0]["role"] == "system",
            {"system_role": "user"},
        ),
        (
            nested("Conversation roles must alternate user/assistant/user/assistant/..."),
            lambda b: [m["role"] for m in b["messages"]].count("user") > 1,
            {"alternate": True},
        ),
    ],
)
async def test_a_refused_peculiarity_is_learnt_at_once(client, refusal, refuses, learnt):
    said = (UserMessage(text="What was before"), UserMessage(text="Go"))
    history = (*said, calling(call("call_1"), thought="hm"), result("call_1"))
    options = {"parallel_tool_calls": False, "max_tokens": 100}
    async with ProviderServer(strict=strict(refusal, refuses)) as server:
        target = provider(client, server.url("strict"), options=options)
        error = await failure(target, *history)
        assert error.adapted
        assert target.quirks == Quirks(**learnt)
        assert text((await ask(target, *history))[1]) == "Hello."


async def test_a_server_that_cannot_stream_is_asked_for_documents(client, server):
    target = provider(client, server.url("streamless"))
    assert (await failure(target)).adapted
    assert text((await ask(target))[1]) == "Hello."
    assert target.quirks == Quirks(stream=False)


async def test_a_server_that_refuses_everything_is_asked_a_few_times(client):
    refusal = nested("content: null or empty content, <nil>, must be non-empty, stream_options")
    async with ProviderServer(strict=strict(refusal, lambda body: True)) as server:
        target = provider(client, server.url("strict"))
        history = (UserMessage(text="Go"), calling(call("x")), result("x"))
        tries = [(await failure(target, *history)).adapted for _ in range(6)]
    assert tries == [True, True, False, False, False, False]


async def test_an_ordinary_refusal_teaches_nothing(client):
    scene = strict(nested("messages: at least one is needed"), lambda body: True)
    async with ProviderServer(strict=scene) as server:
        error = await failure(provider(client, server.url("strict")))
    assert (error.code, error.adapted) == ("provider_refused", False)


async def test_a_full_context_has_its_own_code(client):
    refusal = nested(
        "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"
    )
    async with ProviderServer(strict=strict(refusal, lambda body: True)) as server:
        assert (await failure(provider(client, server.url("strict")))).code == "context_overflow"


# ── the collected cases over HTTP ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "case",
    [name for name in cases.names("A") if cases.expected(name)["outcome"] in ("ok", "tool_error")],
)
async def test_a_collected_case_through_http(client, stub, case):
    right = cases.expected(case)
    _, reply = await ask(provider(client, stub.url(case)))
    assert text(reply).strip() in right.get("text_any_of", [right["text"].strip()])
    assert [block.name for block in AssistantMessage(blocks=reply.blocks).calls] == [
        wanted["name"] for wanted in right["tool_calls"]
    ]
    assert reply.finish_reason == right["finish_reason"]


@pytest.mark.parametrize(
    ("case", "kind", "code", "status"),
    [
        ("A20", ProviderIncomplete, "provider_incomplete", None),
        ("A39", ProviderUnavailable, "provider_overloaded", 503),
        ("A41", ProviderRefused, "provider_model", None),
        ("A43", ProviderUnavailable, "provider_rate_limited", 429),
        ("A45", ProviderRefused, "provider_auth", 401),
    ],
)
async def test_a_collected_failure_through_http(client, stub, case, kind, code, status):
    error = await failure(provider(client, stub.url(case)))
    assert (type(error), error.code, error.status) == (kind, code, status)
    assert cases.expected(case)["error"] is None or cases.expected(case)["error"].get(
        "contains", ""
    ) in str(error)


async def test_an_optional_field_is_given_up_for_a_strict_server(client, stub):
    target = provider(client, stub.url("A54"))
    assert (await failure(target)).adapted
    assert text((await ask(target))[1]) == "Without options."
    assert len(stub.run("A54").bodies) == 2


async def test_null_content_is_given_up_for_a_server_that_cannot_read_it(client, stub):
    target = provider(client, stub.url("A58"))
    _, reply = await ask(target)
    history = (UserMessage(text="Go"), AssistantMessage(blocks=reply.blocks), result("call_a"))
    assert (await failure(target, *history)).adapted
    assert text((await ask(target, *history))[1]) == "All done."


async def test_a_broken_call_goes_back_in_a_form_that_servers_accept(client, stub):
    for case in ("A13", "A15", "A17"):
        target = provider(client, stub.url(case))
        _, reply = await ask(target)
        history = (UserMessage(text="Go"), AssistantMessage(blocks=reply.blocks), result("call_a"))
        assert text((await ask(target, *history))[1]) == "All done."
