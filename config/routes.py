"""Where the paths of the API lead, found by their parts.

Django's resolver tries one pattern after the other, at two or three calls of functions each; the API
has some sixty. Its patterns are what this is made of, and whatever is not found here is its to find:
patterns of other kinds, unknown paths, and a fixed part that turns out to be somebody's name.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch, URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

View = Callable[..., Awaitable[HttpResponseBase]]


Place = tuple[View, dict[str, Any]]
"""A view, to be awaited, and what it is called with."""
_PLAIN = re.compile(r"[^<>]*|<(?:str:)?\w+>")


class _Node:
    """What may come next behind the parts of a path."""

    __slots__ = ("fixed", "leaf", "named")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.leaf: tuple[View, tuple[str, ...]] | None = None
        """The view, and the names of the parts that it is given."""


class Routes:
    """Patterns of `path()` whose parts are each a fixed text or one name."""

    def __init__(self, resolver: URLResolver) -> None:
        self._resolver = resolver
        self._root = _Node()
        for route, pattern in _flat(resolver, ""):
            self._add(route, pattern)

    def find(self, path: str) -> Place:
        """`path` begins with a slash. Raises Resolver404."""
        node, given = self._root, []
        for part in path[1:].split("/"):
            following = node.fixed.get(part)
            if following is None:
                following = node.named if part else None
                given.append(part)
            if following is None:
                return self._as_django(path)
            node = following
        if node.leaf is None:
            return self._as_django(path)
        view, names = node.leaf
        return view, dict(zip(names, given, strict=True))

    def _as_django(self, path: str) -> Place:
        match: ResolverMatch = self._resolver.resolve(path)
        return _awaitable(match.func), match.kwargs

    def _add(self, route: str, pattern: URLPattern) -> None:
        node, names = self._root, []
        for part in route.split("/"):
            if part.startswith("<"):
                names.append(part.strip("<>").rpartition(":")[2])
                node.named = node = node.named or _Node()
            else:
                node = node.fixed.setdefault(part, _Node())
        # Of two patterns the first, as Django.
        node.leaf = node.leaf or (_awaitable(pattern.callback), tuple(names))


def _awaitable(view: Callable[..., Any]) -> View:
    return view if iscoroutinefunction(view) else sync_to_async(view)


@lru_cache
def routes_of(urlconf: str) -> Routes:
    return Routes(get_resolver(urlconf))


def _flat(resolver: URLResolver, prefix: str) -> Iterator[tuple[str, URLPattern]]:
    for each in resolver.url_patterns:
        if isinstance(each.pattern, RoutePattern):
            route = prefix + str(each.pattern)
            if isinstance(each, URLResolver):
                if not each.default_kwargs:
                    yield from _flat(each, route)
            elif not each.default_args and all(map(_PLAIN.fullmatch, route.split("/"))):
                yield route, each
