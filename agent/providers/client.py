"""The HTTP pool to all models; and the seam where tests stand in for it.

A model is asked over connections of our own (`connections`). Only what goes through a proxy goes
through aiohttp, which knows how to talk to proxies.

Proxies: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured, as people behind one
expect, but never for this machine: a local model is asked directly whatever the shell exports. A
proxy that speaks no HTTP (SOCKS) is refused, since the way round it may not be meant.
Redirects are not followed, since the key would travel with them. No cookie is kept.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Awaitable, Mapping
from functools import cache, lru_cache
from typing import Protocol, Self
from urllib.request import getproxies, proxy_bypass

import aiohttp
import certifi
from yarl import URL

from agent.addresses import is_this_machine
from agent.providers.connections import KEEPALIVE_SECONDS, Connections, Place
from agent.providers.transport import ProxyUnusable

MAX_CONNECTIONS = 1024
"""Through proxies. Above the active runs of a process; the pool never makes a run wait."""
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Answer(Protocol):
    """A response whose head is here."""

    status: int

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in any case; of several values the first."""
        ...

    def take(self) -> bytes:
        """What has come of the body, without a wait; empty when nothing has, when only `read` can
        tell, and at its end."""
        ...

    def read(self) -> Awaitable[bytes]:
        """What has come of the body, unpacked; waits when nothing has. Empty at its end."""
        ...

    def at_end(self) -> bool:
        """Whether the whole body was read; False when that is not known yet."""
        ...

    def close(self) -> None:
        """Give the connection back, or close it when the body was not read to its end."""
        ...


class Client(Protocol):
    """Sends requests, over connections that it keeps. Raises `transport.FAILURES`."""

    async def post(
        self, url: URL, content: bytes, headers: Mapping[str, str], connect_seconds: float
    ) -> Answer:
        """The answer of the server itself, whatever its status."""
        ...

    async def aclose(self) -> None: ...


class Pool:
    """The client of a process; to be used on one event loop."""

    def __init__(self) -> None:
        self._connections: Connections | None = None
        self._session: aiohttp.ClientSession | None = None
        """To proxies."""
        self._proxies = getproxies()

    async def post(
        self, url: URL, content: bytes, headers: Mapping[str, str], connect_seconds: float
    ) -> Answer:
        proxy = self._proxy_for(url) if self._proxies else None
        if proxy is not None:
            return await self._through(proxy, url, content, headers, connect_seconds)
        if self._connections is None:
            self._connections = Connections(_ssl_context())
        request = _request(url, content, headers)
        return await self._connections.post(_place(url), request, connect_seconds)

    async def _through(
        self,
        proxy: str,
        url: URL,
        content: bytes,
        headers: Mapping[str, str],
        connect_seconds: float,
    ) -> Answer:
        session = self._session = self._session or _session()
        timeout = aiohttp.ClientTimeout(
            total=None, connect=connect_seconds, sock_connect=connect_seconds
        )
        return _Answer(
            await session.post(
                url,
                data=content,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                proxy=proxy,
            )
        )

    async def aclose(self) -> None:
        if self._connections is not None:
            await self._connections.aclose()
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _proxy_for(self, url: URL) -> str | None:
        host = url.host or ""
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if not proxy or is_this_machine(host):
            return None
        if proxy_bypass(f"{host}:{url.port}"):
            return None
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        if not proxy.lower().startswith(("http://", "https://")):
            raise ProxyUnusable
        return proxy


@lru_cache(maxsize=64)
def _place(url: URL) -> Place:
    return Place(url.raw_host or "", url.port or 0, url.scheme == "https")


def _request(url: URL, content: bytes, headers: Mapping[str, str]) -> bytes:
    """A POST as bytes. Raises ValueError for a header that cannot be sent."""
    if any(_UNSENDABLE.search(value) for value in headers.values()):
        raise ValueError("a header holds control characters")
    lines = [_first_lines(url), *[f"{name}: {value}" for name, value in headers.items()]]
    head = "\r\n".join([*lines, f"content-length: {len(content)}", "", ""])
    return head.encode("latin-1") + content


@lru_cache(maxsize=64)
def _first_lines(url: URL) -> str:
    host = url.host_port_subcomponent
    return f"POST {url.raw_path_qs} HTTP/1.1\r\nhost: {host}\r\nuser-agent: Pilothouse"


class _Answer:
    """aiohttp's response, of which only this is used."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.read = response.content.readany
        self.at_end = response.content.at_eof
        self.close = response.close

    def take(self) -> bytes:
        return b""


def make_client() -> Pool:
    """One pool for the event loop that uses it; close it with `aclose()`."""
    return Pool()


def _session() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(
        limit=MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS, ssl=_ssl_context()
    )
    return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())


def prepare_tls() -> None:
    """Read the certificates now; blocks."""
    _ssl_context()


@cache
def _ssl_context() -> ssl.SSLContext:
    """Reading the certificates takes 50 ms; once per process is enough.

    Those of certifi, unless `SSL_CERT_FILE` or `SSL_CERT_DIR` name others: as httpx has it, whose
    import would cost 13 MiB.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    if file or folder:
        return ssl.create_default_context(cafile=file or None, capath=None if file else folder)
    return ssl.create_default_context(cafile=certifi.where())
