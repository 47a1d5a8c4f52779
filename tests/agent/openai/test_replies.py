"""The provider against a real server: replies, what they cost, and what leaving one does."""

from __future__ import annotations

import asyncio
import json
import sys
from types import FrameType

import pytest

from agent.errors import ProviderRefused
from agent.events import AssistantDelta
from agent.providers.client import make_client
from agent.providers.openai import OpenAIProvider
from agent.providers.quirks import Quirks
from tests.support.openai import KEY, Flood, ask, failure, provider, request, text
from tests.support.provider_server import ProviderServer, Request, delta, serving
from tests.support.waiting import happened


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

    def take(self) -> bytes:
        return next(self._reads)

    async def read(self) -> bytes:
        return self.take()


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


@pytest.mark.parametrize(("together", "calls"), [(1, 56), (100, 0.5)])
async def test_a_token_costs_few_calls_between_the_socket_and_its_delta(together, calls):
    few, many = await calls_of(100, together), await calls_of(1100, together)
    assert (many - few) / 1000 < calls


async def test_an_answer_that_comes_in_one_read_is_not_taken_apart():
    few, many = await calls_of(300, 300), await calls_of(1300, 1300)
    assert (many - few) / 1000 < 0.1


# ── leaving ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scene", ["hang", "slow", "chatty"])
async def test_closing_the_stream_closes_the_connection(client, server, scene):
    stream = provider(client, server.url(scene)).stream(request())
    await anext(stream)
    await stream.aclose()
    await happened(lambda: server.closed == 1)


@pytest.mark.parametrize("scene", ["mute", "hang"])
async def test_cancelling_closes_the_connection(client, server, scene):
    task = asyncio.create_task(ask(provider(client, server.url(scene))))
    await happened(lambda: len(server.requests) == 1)
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await happened(lambda: server.closed == 1)


def test_the_server_can_run_in_a_thread():
    async def main(url: str) -> str:
        async with make_client() as client:
            return text((await ask(provider(client, url)))[1])

    with serving(ProviderServer()) as server:
        assert asyncio.run(main(server.url("normal"))) == "Hello."
