"""The provider against a real server: failures, time and damage."""

from __future__ import annotations

import asyncio
import json
import socket
import zlib

import pytest

from agent.errors import ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.providers.assembler import Assembler
from agent.providers.openai import DONE_SECONDS, TAIL_SECONDS, OpenAIProvider, Patience
from tests.support.openai import KEY, Flood, ask, failure, provider, text
from tests.support.provider_server import SSE, ProviderServer, Request, delta


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
        ("1m30s", 90, 90),
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
