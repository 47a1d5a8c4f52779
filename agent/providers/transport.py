"""The network's failures -> our words. Nothing of the HTTP library's own texts."""

from __future__ import annotations

import socket
from base64 import b64encode
from functools import lru_cache
from ssl import SSLError
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable
from agent.providers.connections import ConnectTimeout, NoConnection

FAILURES = (aiohttp.ClientError, OSError, TimeoutError, ValueError)
"""What sending and reading can raise; ValueError is an address or a header that cannot be sent."""
_RUNNING = "Check the base URL and that the server is running."


class ProxyUnusable(ValueError):
    """The shell names a proxy that speaks no HTTP."""


@lru_cache(maxsize=64)
def endpoint(base_url: str) -> URL:
    """Where to post, without credentials; keeps the query and a path that is already whole."""
    url = URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("not an http address")
    path = url.raw_path.rstrip("/")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return url.with_user(None).with_path(path, encoded=True, keep_query=True)


@lru_cache(maxsize=64)
def credentials(base_url: str) -> str:
    """`user:password` in the address, as the value of an Authorization header; else ""."""
    url = URL(base_url)
    userinfo = f"{url.user or ''}:{url.password or ''}"
    return "" if userinfo == ":" else f"Basic {b64encode(userinfo.encode()).decode()}"


def transport_failure(
    error: Exception, base_url: str, seconds: float, *, reading: bool = False
) -> ProviderError:
    """The typed error for what the HTTP library raised while connecting or `reading`."""
    where = _where(base_url)
    if isinstance(
        error, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError | SSLError
    ):
        return ProviderRefused(
            f"No secure connection to the model's server at {where}.",
            code="provider_tls",
            hint="Check its certificate, and http or https in the base URL.",
        )
    if isinstance(error, TimeoutError):
        return _timeout(error, where, seconds, reading)
    if isinstance(error, aiohttp.ClientConnectorDNSError | socket.gaierror):
        return _unreachable(f"The host of the model's server, {where}, has no address.")
    if isinstance(error, aiohttp.ClientConnectorError | NoConnection):
        return _unreachable(f"No connection to the model's server at {where}.")
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return _not_sent(error, where)
    if reading:
        return ProviderIncomplete(
            "The connection to the model broke off in the middle of its reply.",
            code="provider_incomplete",
        )
    return _unreachable(f"The model's server at {where} closed the connection without a reply.")


def _timeout(error: Exception, where: str, seconds: float, reading: bool) -> ProviderError:
    if isinstance(error, aiohttp.ServerTimeoutError | ConnectTimeout):
        message = f"No connection to the model's server at {where} in time."
    elif reading:
        message = f"The model said nothing for {seconds:g} seconds."
    else:
        message = f"The model's server at {where} did not answer within {seconds:g} seconds."
    return ProviderUnavailable(message, code="provider_timeout", hint=_RUNNING)


def _not_sent(error: Exception, where: str) -> ProviderRefused:
    if isinstance(error, ProxyUnusable):
        return ProviderRefused(
            f"The proxy for {where} that the server's environment names cannot be used.",
            code="provider_unreachable",
            hint="HTTPS_PROXY, HTTP_PROXY and ALL_PROXY begin with http:// or https://. NO_PROXY "
            "names hosts that need none.",
        )
    return ProviderRefused(
        "The request cannot be sent: the base URL or the API key is malformed.",
        code="provider_url",
        hint="The base URL looks like https://host/v1; a key is one line of ASCII.",
    )


def _unreachable(message: str) -> ProviderUnavailable:
    return ProviderUnavailable(message, code="provider_unreachable", hint=_RUNNING)


def _where(base_url: str) -> str:
    """Host and port, nothing secret."""
    try:
        parts = urlsplit(base_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.hostname or '?'}{port}"
    except ValueError:
        return "?"
