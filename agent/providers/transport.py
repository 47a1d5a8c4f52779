"""The network's failures and headers -> our words. Nothing of the HTTP libraries' own texts."""

from __future__ import annotations

import math
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from ssl import SSLError
from urllib.parse import urlsplit

import aiohttp
import httpx

from agent.errors import ProviderError, ProviderIncomplete, ProviderRefused, ProviderUnavailable

FAILURES = (
    httpx.HTTPError,
    httpx.InvalidURL,
    aiohttp.ClientError,
    OSError,
    TimeoutError,
    ValueError,
)
"""What sending and reading can raise; ValueError is an address or a header that cannot be sent."""
_RUNNING = "Check the base URL and that the server is running."


@lru_cache(maxsize=64)
def endpoint(base_url: str) -> httpx.URL:
    """Where to post, without credentials; keeps the query and a path that is already whole."""
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise httpx.InvalidURL("not an http address")
    path = url.path.rstrip("/")
    path = path if path.endswith("/chat/completions") else f"{path}/chat/completions"
    return url.copy_with(path=path, username="", password="")


@lru_cache(maxsize=64)
def credentials(base_url: str) -> str:
    """`user:password` in the address, as the value of an Authorization header; else ""."""
    userinfo = httpx.URL(base_url).userinfo
    return f"Basic {b64encode(userinfo).decode()}" if userinfo else ""


def transport_failure(
    error: Exception, base_url: str, seconds: float, *, reading: bool = False
) -> ProviderError:
    """The typed error for what the HTTP libraries raised while connecting or `reading`.

    Judged by the first cause: the transport reports a reset on sending as a connect timeout.
    """
    cause = error.__cause__ if isinstance(error, httpx.HTTPError) and error.__cause__ else error
    where = _where(base_url)
    if isinstance(
        cause, aiohttp.ClientSSLError | aiohttp.ClientConnectorCertificateError | SSLError
    ):
        return ProviderRefused(
            f"No secure connection to the model's server at {where}.",
            code="provider_tls",
            hint="Check its certificate, and http or https in the base URL.",
        )
    if isinstance(cause, TimeoutError):
        return _timeout(cause, where, seconds, reading)
    if isinstance(cause, aiohttp.ClientConnectorDNSError):
        return _unreachable(f"The host of the model's server, {where}, has no address.")
    if isinstance(cause, aiohttp.ClientConnectorError | ConnectionRefusedError):
        return _unreachable(f"No connection to the model's server at {where}.")
    if isinstance(
        cause, httpx.InvalidURL | httpx.UnsupportedProtocol | aiohttp.InvalidURL | ValueError
    ):
        return ProviderRefused(
            "The request cannot be sent: the base URL or the API key is malformed.",
            code="provider_url",
            hint="The base URL looks like https://host/v1; a key is one line of ASCII.",
        )
    if reading:
        return ProviderIncomplete(
            "The connection to the model broke off in the middle of its reply.",
            code="provider_incomplete",
        )
    return _unreachable(f"The model's server at {where} closed the connection without a reply.")


def retry_after(headers: httpx.Headers) -> float | None:
    """Seconds that the server asks us to wait, given as a number or a date."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, IndexError, TypeError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _timeout(cause: Exception, where: str, seconds: float, reading: bool) -> ProviderError:
    if isinstance(cause, aiohttp.ServerTimeoutError):
        message = f"No connection to the model's server at {where} in time."
    elif reading:
        message = f"The model said nothing for {seconds:g} seconds."
    else:
        message = f"The model's server at {where} did not answer within {seconds:g} seconds."
    return ProviderUnavailable(message, code="provider_timeout", hint=_RUNNING)


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
