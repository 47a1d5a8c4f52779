"""The API's paths lead where Django's resolver leads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse
from django.urls import Resolver404, URLPattern, get_resolver, include, path, re_path

from config.middleware import is_api
from config.routes import Routes, routes_of


def patterns(resolver: Any, prefix: str = "/") -> Iterator[str]:
    for each in resolver.url_patterns:
        route = prefix + str(each.pattern)
        if isinstance(each, URLPattern):
            yield route
        else:
            yield from patterns(each, route)


API = sorted({route for route in patterns(get_resolver("config.urls")) if is_api(route)})


def filled(route: str, value: str) -> str:
    return "/".join(value if part.startswith("<") else part for part in route.split("/"))


@pytest.mark.parametrize("value", ["x", "running", "resolve", "ü %2F", "a\nb"])
def test_every_path_of_the_api_leads_where_django_leads_it(value: str) -> None:
    routes, django = routes_of("config.urls"), get_resolver("config.urls")
    assert len(API) > 40
    for route in API:
        where = filled(route, value)
        match = django.resolve(where)
        assert routes.find(where) == (match.func, match.kwargs), where


@pytest.mark.parametrize("where", ["/api/", "/api/tasks/", "/api/tasks//stream", "/api/no/such"])
def test_what_no_operation_serves_is_told_so_by_the_api(where: str) -> None:
    view, _ = routes_of("config.urls").find(where)
    assert view is get_resolver("config.urls").resolve(where).func


def test_all_of_ours_are_found_without_asking_django(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = Routes(get_resolver("config.urls"))
    asked: list[str] = []
    monkeypatch.setattr(routes, "_as_django", asked.append)
    for route in API:
        routes.find(filled(route, "x"))
    assert asked == []


def view(request: HttpRequest, **given: str) -> HttpResponse:
    return HttpResponse(repr(given))


async def aview(request: HttpRequest, **given: str) -> HttpResponse:
    return HttpResponse(repr(given))


urlpatterns = [
    path("api/<str:name>/first", aview),
    path("api/<str:other>/first", view),
    path("api/<int:number>/second", aview),
    path("api/a-<str:rest>", aview),
    path("api/extra", aview, {"more": "yes"}),
    path("api/sync/<name>", view),
    re_path(r"^api/re/(?P<name>\d+)$", aview),
    path("api/deep/", include([path("<one>/<two>", aview)])),
]


@pytest.mark.parametrize(
    ("where", "arguments"),
    [
        ("/api/x/first", {"name": "x"}),
        ("/api/7/second", {"number": 7}),
        ("/api/a-b", {"rest": "b"}),
        ("/api/extra", {"more": "yes"}),
        ("/api/re/12", {"name": "12"}),
        ("/api/deep/a/b", {"one": "a", "two": "b"}),
    ],
)
def test_patterns_of_other_kinds_are_django_s(where: str, arguments: dict[str, Any]) -> None:
    assert Routes(get_resolver(__name__)).find(where) == (aview, arguments)


def test_a_view_that_is_not_async_goes_to_a_thread() -> None:
    found, _ = Routes(get_resolver(__name__)).find("/api/sync/x")
    assert iscoroutinefunction(found)


def test_what_is_nowhere_is_404() -> None:
    with pytest.raises(Resolver404):
        Routes(get_resolver(__name__)).find("/api/x/third")
