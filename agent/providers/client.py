"""The HTTP pool to all models: httpx's interface over aiohttp's transport.

aiohttp costs a quarter of httpx's own transport per call and per token, and its pool does not slow
down with many idle connections.

Proxies: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured, as people behind one
expect, but never for this machine: a local model is asked directly whatever the shell exports.
Redirects are not followed, since the key would travel with them.
"""

from __future__ import annotations

from functools import cache
from ssl import SSLContext

import httpx
from httpx_aiohttp import HttpxAiohttpClient

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
MAX_CONNECTIONS = 1024
"""Above the active runs of a process; the pool never makes a run wait."""
KEEPALIVE_SECONDS = 15.0
"""Short, so that a server seldom closes a connection just as we send on it."""


def make_client() -> httpx.AsyncClient:
    """One pool for the event loop that uses it; close it with `aclose()`."""
    return HttpxAiohttpClient(
        verify=_ssl_context(),
        limits=httpx.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_SECONDS),
        mounts={f"all://{host}": None for host in LOOPBACK},
        timeout=httpx.Timeout(None),
        follow_redirects=False,
        trust_env=True,
    )


def prepare_tls() -> None:
    """Read the certificates now; blocks."""
    _ssl_context()


@cache
def _ssl_context() -> SSLContext:
    """Reading the certificates takes 50 ms; once per process is enough."""
    return httpx.create_ssl_context()
