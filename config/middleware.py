"""Django's page middlewares, for pages only, and the few lines that the API needs instead.

Each of Django's middlewares costs a request under ASGI one or two hops to a thread, together
about 4 ms. The JSON API, the streams and the probes use none of them: they find out by themselves
who is asking. So every page middleware steps aside for their paths without leaving the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Any, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.messages.middleware import MessageMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import DisallowedHost, MiddlewareNotUsed
from django.http import HttpRequest, HttpResponseForbidden, JsonResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.common import CommonMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.locale import LocaleMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin
from whitenoise.middleware import WhiteNoiseMiddleware

from tasks.addresses import comes_from_proxy

logger = logging.getLogger(__name__)

GetResponse = Callable[[HttpRequest], Any]
"""Sync or async: returns a response, or an awaitable of one."""
API_PREFIXES = ("/api/", "/agui/")
API_PATHS = frozenset({"/agui", "/healthz", "/readyz", "/metrics"})
PROBES = frozenset({"/healthz", "/readyz"})
API_DOCS = "/api/docs"
PROTOCOL = "HTTP_X_FORWARDED_PROTO"
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The Content-Security-Policy of what is no page: opened as one, it can do nothing."""
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "microphone", "geolocation", "payment", "usb", "display-capture")
)


def is_api(path: str) -> bool:
    """Whether the path belongs to the API rather than to the pages."""
    return path in API_PATHS or path.startswith(API_PREFIXES)


class PagesOnly(MiddlewareMixin):
    """Mixed in before one of Django's middlewares: API paths pass it by."""

    def __call__(self, request: HttpRequest) -> Any:
        # In async mode either step returns a coroutine; Django awaits it.
        step = self.get_response if is_api(request.path_info) else super().__call__
        return step(request)


class Security(PagesOnly, SecurityMiddleware):
    pass


class ContentPolicy(PagesOnly, CSPMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return super().process_response(request, response)


class Locale(PagesOnly, LocaleMiddleware):
    pass


class Sessions(PagesOnly, SessionMiddleware):
    def process_request(self, request: HttpRequest) -> None:
        name = settings.SESSION_COOKIE_NAME
        if "\0" in request.COOKIES.get(name, ""):  # PostgreSQL refuses to look for it
            del request.COOKIES[name]
        super().process_request(request)


class Common(PagesOnly, CommonMiddleware):
    pass


class Csrf(PagesOnly, CsrfViewMiddleware):
    """Its view hook must be a coroutine function under ASGI, or Django hops for API paths, too."""

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            vars(self)["process_view"] = self.aprocess_view

    def process_view(self, request: HttpRequest, *view: Any) -> HttpResponseForbidden | None:
        return None if is_api(request.path_info) else super().process_view(request, *view)

    async def aprocess_view(self, request: HttpRequest, *view: Any) -> HttpResponseForbidden | None:
        if is_api(request.path_info):
            return None
        return await sync_to_async(super().process_view)(request, *view)


class Authentication(PagesOnly, AuthenticationMiddleware):
    pass


class Messages(PagesOnly, MessageMiddleware):
    pass


class FrameOptions(PagesOnly, XFrameOptionsMiddleware):
    pass


@sync_and_async_middleware
def forwarded(get_response: GetResponse) -> GetResponse:
    """Whether the client speaks TLS is the word of a proxy that we trust, or nobody's."""
    if settings.SECURE_PROXY_SSL_HEADER is None:
        raise MiddlewareNotUsed

    def call(request: HttpRequest) -> Any:
        # In async mode the step returns a coroutine; Django awaits it.
        if PROTOCOL in request.META and not comes_from_proxy(request):
            _say_who_is_not_believed(str(request.META["REMOTE_ADDR"]))
            del request.META[PROTOCOL]
        return get_response(request)

    return markcoroutinefunction(call) if iscoroutinefunction(get_response) else call


@lru_cache(100)  # anybody can send it
def _say_who_is_not_believed(peer: str) -> None:
    """Once: a proxy that was forgotten makes pages redirect for ever."""
    logger.warning(
        "X-Forwarded-Proto of %s is not believed. If that is your proxy, name it in"
        " PILOTHOUSE_TRUSTED_PROXIES.",
        peer,
    )


@sync_and_async_middleware
def api_headers(get_response: GetResponse) -> GetResponse:
    """For API paths what the skipped middlewares are worth: a checked Host, safe headers."""
    if iscoroutinefunction(get_response):

        async def acall(request: HttpRequest) -> HttpResponseBase:
            refused = _refuse_host(request)
            return _with_headers(request, refused or await get_response(request))

        return acall

    def call(request: HttpRequest) -> HttpResponseBase:
        return _with_headers(request, _refuse_host(request) or get_response(request))

    return call


def _refuse_host(request: HttpRequest) -> HttpResponseBase | None:
    """A foreign Host header is an attack by DNS rebinding; probes may come by address."""
    if not is_api(request.path_info) or request.path_info in PROBES:
        return None
    try:
        request.get_host()
    except DisallowedHost:
        message = "This host name is not served here; see ALLOWED_HOSTS."
        return JsonResponse({"error": {"code": "bad_host", "message": message}}, status=400)
    return None


def _with_headers(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if is_api(request.path_info):
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        response.headers.setdefault("Referrer-Policy", "same-origin")
        response.headers.setdefault("X-Frame-Options", "DENY")
        if settings.SECURE_HSTS_SECONDS and request.is_secure():
            hsts = f"max-age={settings.SECURE_HSTS_SECONDS}"
            response.headers.setdefault("Strict-Transport-Security", hsts)
        policy = build_policy() if request.path_info == API_DOCS else DATA_POLICY
        response.headers.setdefault("Content-Security-Policy", policy)
    return response


@sync_and_async_middleware
def static_files(get_response: GetResponse) -> GetResponse:
    """WhiteNoise under both kinds of server, off the event loop and only below STATIC_URL."""
    if not iscoroutinefunction(get_response):
        return cast(GetResponse, WhiteNoiseMiddleware(get_response, settings))
    files = WhiteNoiseMiddleware(_no_such_file, settings)
    prefix = str(settings.STATIC_URL)

    async def call(request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(prefix):
            found = await sync_to_async(_read, thread_sensitive=False)(files, request)
            if found is not None:
                return found
        return cast(HttpResponseBase, await get_response(request))

    return call


def _no_such_file(request: HttpRequest) -> None:
    """WhiteNoise asks whoever comes next; None tells `call` that it must."""


def _read(
    files: Callable[[HttpRequest], HttpResponseBase | None], request: HttpRequest
) -> HttpResponseBase | None:
    response = files(request)
    if isinstance(response, StreamingHttpResponse):
        # Django would read a synchronous body on the event loop, and warn.
        response.streaming_content = _pieces(list(cast(Any, response.streaming_content)))
    return response


async def _pieces(read: list[bytes]) -> AsyncIterator[bytes]:
    for piece in read:
        yield piece
