"""Operations that are called without ninja's own way ask for nothing that only that way does."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from ninja import NinjaAPI, Router
from ninja.throttling import AnonRateThrottle

from tasks.api.edge import Identity
from tasks.api.operations import directly


async def shown(request: HttpRequest) -> dict[str, int]:
    return {"n": 1}


async def shown_with_headers(request: HttpRequest, response: HttpResponse) -> dict[str, int]:
    return {"n": 1}


def shown_by_a_thread(request: HttpRequest) -> dict[str, int]:
    return {"n": 1}


async def anybody(request: HttpRequest) -> str | None:
    return None


def served(name: str, view: Any, **options: Any) -> None:
    """As an operation of an API like ours."""
    api = NinjaAPI(urls_namespace=name, auth=Identity())
    api.add_decorator(directly, "view")
    router = Router()
    router.get("/shown", response=dict[str, int], **options)(view)
    api.add_router("", router)
    assert api.urls


def test_it_works() -> None:
    served("works", shown)
    served("public", shown, auth=None)


@pytest.mark.parametrize(
    ("view", "options"),
    [
        (shown_by_a_thread, {}),
        (shown_with_headers, {}),
        (shown, {"auth": anybody}),
        (shown, {"auth": [Identity(), anybody]}),
        (shown, {"throttle": AnonRateThrottle("1/d")}),
        (shown, {"by_alias": True}),
        (shown, {"exclude_none": True}),
        (shown, {"exclude_unset": True}),
        (shown, {"exclude_defaults": True}),
    ],
)
def test_what_would_be_left_out_is_refused_when_the_api_is_made(
    view: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(AssertionError):
        served("refused", view, **options)
