"""The HTTP transport's client: it talks to one address that was looked at, and to no other.

As with `fetch_url`: the name is resolved once per connection, every address of it has to be public
unless the settings say that the server is in a private network, and the connection goes to one of
exactly these. No proxy, no cookie; the size of an answer is bounded, unpacked it is what was sent.
Redirects go to the same origin only (the SDK sees to that).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count

import httpx2

from agent.addresses import is_public, lookup
from agent.urls import Location

MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of one response."""
CONNECT_SECONDS = 10.0
SESSION = "mcp-session-id"
CALL = "pilothouse-call"
"""A header that names the call to our own transport, which takes it off: no server sees it."""


class NotPublic(httpx2.ConnectError):
    """The name leads into a private network."""


@dataclass
class Refusal:
    """The answer to one call that was none; the SDK tells of it without what HTTP says."""

    status: int = 0
    in_session: bool = False
    """It was asked in a session that had begun."""


class Refusals:
    """Of the calls that are under way. Each has its own: they run at the same time, and the 404 of
    one would have another, which was answered, asked again."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._of: dict[str, Refusal] = {}

    @contextmanager
    def of_call(self) -> Iterator[tuple[dict[str, str], Refusal]]:
        """Headers to make a call with, and how it is refused, if it is, as long as the block."""
        call = str(next(self._numbers))
        refusal = self._of[call] = Refusal()
        try:
            yield {CALL: call}, refusal
        finally:
            del self._of[call]

    def note(self, request: httpx2.Request, status: int) -> None:
        """A request was refused; it is of no call if it answers, tells or only listens."""
        refusal = self._of.get(request.headers.get(CALL, ""))
        if refusal is not None:
            refusal.status = status
            refusal.in_session = SESSION in request.headers


def client(
    location: Location,
    headers: Mapping[str, str],
    *,
    private: bool,
    seconds: float,
    refusals: Refusals,
) -> httpx2.AsyncClient:
    """For one server; `refusals` are told. Close it."""
    return httpx2.AsyncClient(
        transport=_Pinned(private, refusals),
        headers={**headers, "User-Agent": "Pilothouse (MCP)", "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=seconds),
        trust_env=False,
        follow_redirects=False,
    )


async def address_of(host: str, port: int, *, private: bool) -> str:
    """Where to connect. Raises NotPublic, ConnectError."""
    try:
        addresses = await lookup(host, port)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError("There is no such host.") from error
    if not addresses or not (private or all(map(is_public, addresses))):
        raise NotPublic("The address is not on the public network.")
    return addresses[0]


class _Pinned(httpx2.AsyncBaseTransport):
    """Connects to addresses that were checked, under the name that was asked for."""

    def __init__(self, private: bool, refusals: Refusals) -> None:
        self._private = private
        self._refusals = refusals
        self._http = httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.host
        request.headers.setdefault("Host", request.url.netloc.decode("ascii"))
        address = await address_of(host, request.url.port or 443, private=self._private)
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        response = await self._sent(request)
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.RemoteProtocolError("The answer is packed, which was not asked for.")
        if response.status_code >= 400:
            self._refusals.note(request, response.status_code)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(response.stream)
        return response

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        call = request.headers.pop(CALL, None)
        response = await self._http.handle_async_request(request)
        if call is not None:
            request.headers[CALL] = call  # where it is redirected, it is the same call
        return response

    async def aclose(self) -> None:
        await self._http.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for block in self._stream:
            size += len(block)
            if size > MAX_ANSWER:
                raise httpx2.ReadError("The answer is too large.")
            yield block
            await asyncio.sleep(0)  # who floods us has the loop no longer than others

    async def aclose(self) -> None:
        await self._stream.aclose()


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes 50 ms; once per process is enough."""
    return httpx2.create_ssl_context()
