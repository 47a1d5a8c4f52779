"""What stands before the pages, and the few lines that the API has instead.

Each of Django's middlewares costs a request under ASGI one or two hops to a thread, together about
4 ms. The JSON API, the streams and the probes use none of them: they find out by themselves who is
asking. So their paths leave the chain where it begins, and go to their views by `config.routes`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from functools import lru_cache
from typing import Any, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.exceptions import DisallowedHost, MiddlewareNotUsed
from django.core.handlers.exception import response_for_exception
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware

from config.routes import routes_of
from streaming.asgi.headers import Headers
from tasks.addresses import comes_from_proxy

logger = logging.getLogger(__name__)

GetResponse = Callable[[HttpRequest], Any]
"""Sync or async: returns a response, or an awaitable of one."""
API_PREFIXES = ("/api/", "/agui/")
API_PATHS = frozenset({"/agui", "/healthz", "/readyz", "/metrics"})
PROBES = frozenset({"/healthz", "/readyz"})
API_DOCS = "/api/docs"
PROTOCOL = "HTTP_X_FORWARDED_PROTO"
DATA_HEADERS = Headers(
    {
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "same-origin",
        "X-Frame-Options": "DENY",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Cache-Control": "private, no-store",
    }
)
"""Of what is no page: opened as one, it can do nothing, and nobody keeps it."""
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in ("camera", "microphone", "geolocation", "payment", "usb", "display-capture")
)


def is_api(path: str) -> bool:
    """Whether the path belongs to the API rather than to the pages."""
    return path in API_PATHS or path.startswith(API_PREFIXES)


class ContentPolicy(CSPMiddleware):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> Any:
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        return super().process_response(request, response)


class Sessions(SessionMiddleware):
    def process_request(self, request: HttpRequest) -> None:
        name = settings.SESSION_COOKIE_NAME
        if "\0" in request.COOKIES.get(name, ""):  # PostgreSQL refuses to look for it
            del request.COOKIES[name]
        super().process_request(request)


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
def api_first(get_response: GetResponse) -> GetResponse:
    """API paths go to their views from here: with a checked Host, and safe headers on the answer."""
    if iscoroutinefunction(get_response):

        async def acall(request: HttpRequest) -> HttpResponseBase:
            if not is_api(request.path_info):
                passed: HttpResponseBase = await get_response(request)
                return passed
            response = _refuse_host(request)
            if response is None:
                try:
                    view, arguments = routes_of(settings.ROOT_URLCONF).find(request.path_info)
                    response = await view(request, **arguments)
                except Exception as error:  # noqa: BLE001 - as Django around each middleware
                    tell = sync_to_async(response_for_exception, thread_sensitive=False)
                    response = await tell(request, error)
            return _with_headers(request, response)

        return acall

    def call(request: HttpRequest) -> HttpResponseBase:
        if not is_api(request.path_info):
            return cast(HttpResponseBase, get_response(request))
        response = _refuse_host(request)
        if response is None:
            try:
                view, arguments = routes_of(settings.ROOT_URLCONF).find(request.path_info)
                response = async_to_sync(view)(request, **arguments)
            except Exception as error:  # noqa: BLE001 - as above
                response = response_for_exception(request, error)
        return _with_headers(request, response)

    return call


def _refuse_host(request: HttpRequest) -> HttpResponseBase | None:
    """A foreign Host header is an attack by DNS rebinding; probes may come by address."""
    if request.path_info in PROBES:
        return None
    host = request.META.get("HTTP_HOST")
    try:
        if host is None:
            request.get_host()  # of old clients the address that they came to
        else:
            _check_host(host, tuple(settings.ALLOWED_HOSTS))
    except DisallowedHost:
        message = "This host name is not served here; see ALLOWED_HOSTS."
        return JsonResponse({"error": {"code": "bad_host", "message": message}}, status=400)
    return None


@lru_cache(100)  # a Host that is refused raises, and is not remembered
def _check_host(host: str, allowed: tuple[str, ...]) -> None:
    """As `HttpRequest.get_host()`; for the next request with the same words it costs nothing."""
    asked = HttpRequest()
    asked.META = {"HTTP_HOST": host}
    asked.get_host()


def _with_headers(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if settings.SECURE_HSTS_SECONDS and request.is_secure():
        hsts = f"max-age={settings.SECURE_HSTS_SECONDS}"
        response.headers.setdefault("Strict-Transport-Security", hsts)
    if request.path_info == API_DOCS:
        response.headers.setdefault("Content-Security-Policy", build_policy())
    DATA_HEADERS.beneath(response)
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
