"""Every path that the product serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver


def url_conf() -> Iterator[str]:
    """The path of every pattern, in the notation of OpenAPI."""

    def walk(patterns: list[Any], prefix: str) -> Iterator[str]:
        for pattern in patterns:
            path = prefix + str(pattern.pattern)
            if isinstance(pattern, URLResolver):
                yield from walk(pattern.url_patterns, path)
            elif isinstance(pattern, URLPattern):
                yield path

    for path in walk(get_resolver().url_patterns, "/"):
        plain = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"<\1>", path).replace("^", "").replace("$", "")
        yield re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", plain)
