from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from ipaddress import ip_network
from typing import Any, cast

import pytest
from asgiref.sync import ThreadSensitiveContext
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client
from django.urls import path

from config.middleware import is_api


async def report(request: HttpRequest) -> HttpResponse:
    """Says what the middlewares left on the request."""
    seen = [name for name in ("session", "user", "_messages") if hasattr(request, name)]
    return HttpResponse(",".join(seen))


urlpatterns = [
    path("page", report),
    path("api/thing", report),
    path("agui", report),
    path("healthz", report),
]

pytestmark = pytest.mark.urls(__name__)


@pytest.mark.parametrize(
    ("where", "api"),
    [
        ("/api/tasks", True),
        ("/agui", True),
        ("/agui/capabilities", True),
        ("/healthz", True),
        ("/readyz", True),
        ("/", False),
        ("/apis", False),
        ("/c/1", False),
        ("/admin/api/", False),
        ("/healthz/x", False),
    ],
)
def test_which_paths_are_the_api(where, api):
    assert is_api(where) is api


async def test_pages_have_session_user_and_messages():
    response = await AsyncClient().get("/page")
    assert response.content == b"session,user,_messages"
    assert response["X-Frame-Options"] == "DENY"
    assert response["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("where", ["/api/thing", "/agui", "/healthz"])
async def test_the_api_passes_the_page_middlewares_by(where):
    response = await AsyncClient().get(where)
    assert response.content == b""
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Cache-Control"] == "private, no-store"


async def test_a_page_is_protected_against_forged_posts_and_the_api_does_it_itself():
    client = AsyncClient(enforce_csrf_checks=True)
    assert (await client.post("/page")).status_code == 403
    assert (await client.post("/api/thing")).status_code == 200


def test_the_same_holds_under_a_synchronous_server():
    client = Client(enforce_csrf_checks=True)
    assert client.get("/page").content == b"session,user,_messages"
    assert client.get("/api/thing").content == b""
    assert client.post("/page").status_code == 403
    assert client.post("/api/thing").status_code == 200


class CountingExecutor(ThreadPoolExecutor):
    """The thread of one request, as Django's ASGI handler gives it; counts the hops to it."""

    hops = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.hops += 1
        return super().submit(*args, **kwargs)


async def hops(where: str) -> int:
    handler, request = ASGIHandler(), HttpRequest()
    request.method, request.path, request.path_info = "GET", where, where
    request.META = {"SERVER_NAME": "localhost", "SERVER_PORT": "80"}
    with CountingExecutor(max_workers=1) as executor:
        async with ThreadSensitiveContext(executor=executor):
            response = await handler.get_response_async(request)
    assert response.status_code == 200
    return executor.hops


async def test_an_api_request_never_leaves_the_event_loop():
    assert await hops("/api/thing") == 0
    assert await hops("/page") > 0


async def test_a_foreign_host_is_refused_by_the_api_but_probes_may_come_by_address(settings):
    settings.ALLOWED_HOSTS = ["localhost"]
    client = AsyncClient()
    refused = await client.get("/api/thing", headers={"host": "evil.example"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "bad_host"
    assert (await client.get("/healthz", headers={"host": "10.0.0.7"})).status_code == 200


async def test_static_files_are_served_without_a_warning():
    response = await AsyncClient().get("/static/admin/css/base.css")
    assert response.status_code == 200
    body = b"".join([piece async for piece in cast(Any, response)])
    assert len(body) == int(response["Content-Length"])
    assert (await AsyncClient().get("/static/none.css")).status_code == 404


def test_static_files_under_a_synchronous_server():
    response = Client().get("/static/admin/css/base.css")
    assert b"".join(response).startswith(b"/*")


def test_with_an_https_address_pages_leave_http_and_answers_say_so(settings):
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_HSTS_SECONDS = 3600
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    client = Client()
    page = client.get("/page")
    assert (page.status_code, page["Location"]) == (301, "https://testserver/page")
    assert client.get("/healthz").status_code == 200, "probes and local scripts come as they are"
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, trusted_proxies=(ip_network("127.0.0.1"),))
    for where in ("/page", "/api/thing"):
        answer = client.get(where, headers={"X-Forwarded-Proto": "https"})
        assert answer.status_code == 200
        assert answer["Strict-Transport-Security"] == "max-age=3600"
    assert "Strict-Transport-Security" not in client.get("/api/thing")


def test_that_it_speaks_tls_is_a_trusted_proxy_s_word(settings, caplog):
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, trusted_proxies=(ip_network("10.0.0.7"),))
    said = {"X-Forwarded-Proto": "https"}

    def from_(address: str) -> int:
        return int(Client(REMOTE_ADDR=address).get("/page", headers=said).status_code)

    assert from_("10.0.0.7") == 200
    assert [from_("10.0.0.8") for _ in range(2)] == [301, 301]
    warned = [record.getMessage() for record in caplog.records if "not believed" in record.msg]
    assert len(warned) == 1
    assert "10.0.0.8" in warned[0]
