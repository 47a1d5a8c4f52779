"""A page of somebody else, open in the same browser, can change nothing here.

The test walks the URL conf: whatever is added to it is tried with a signed-in cookie and no token.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tasks.api import api
from tests.support.routes import url_conf
from tests.support.rows import make_user

pytestmark = pytest.mark.django_db

UNSAFE = ("post", "put", "patch", "delete")
BY_SECRET = ("/api/webhooks/",)
"""No cookie opens these: they are for programs, which send a secret of their own."""
NOTHING_THERE = "/api/{path}"
SAMPLE = {"sequence": "1", "token_id": "1", "app_label": "tasks", "content_type_id": "1"}
UUID = "00000000-0000-0000-0000-000000000001"


def filled(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: SAMPLE.get(found[1], UUID), path)


@pytest.fixture
def browser() -> Client:
    """Of somebody who may do everything."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user("admin", is_staff=True, is_superuser=True))
    return client


def operations() -> set[tuple[str, str]]:
    schema: dict[str, Any] = dict(api.get_openapi_schema())
    found = {(method, path) for path, known in schema["paths"].items() for method in known}
    return {(method, path) for method, path in found if method in UNSAFE}


def test_every_unsafe_operation_of_the_api_wants_the_token(browser: Client) -> None:
    assert len(operations()) > 10
    for method, path in sorted(operations()):
        if path.startswith(BY_SECRET):
            continue
        answer = browser.generic(method.upper(), filled(path), b"{}", "application/json")
        assert answer.status_code == 403, (method, path, answer.content)
        assert answer.json()["error"]["code"] == "csrf", path


def test_every_page_refuses_what_comes_without_the_token(browser: Client) -> None:
    served = {path for _, path in operations()}
    elsewhere = ("/api/", "/agui/")
    pages = [path for path in url_conf() if path not in served and not path.startswith(elsewhere)]
    assert len(pages) > 50
    for path in pages:
        for method in UNSAFE:
            answer = browser.generic(
                method.upper(), filled(path), b"a=1", "application/x-www-form-urlencoded"
            )
            # A path that only reads may refuse the method before anything else.
            assert answer.status_code in (403, 405), (method, path, answer.status_code)
            if method == "post" and not path.startswith(("/healthz", "/readyz", "/metrics")):
                assert answer.status_code == 403, path


def test_with_the_token_of_another_browser_it_is_no_better(browser: Client) -> None:
    other = Client()
    other.get("/sign-in")
    header = {"X-CSRFToken": other.cookies["csrftoken"].value}
    answer = browser.post("/api/tasks", b"{}", "application/json", headers=header)
    assert answer.json()["error"]["code"] == "csrf"
