"""What stands around every operation: a bounded JSON body, an identity, the scope, JSON back."""

from __future__ import annotations

import json
from typing import Any, NoReturn, cast

import msgspec
from django.conf import settings
from django.http import HttpRequest
from django.utils.datastructures import MultiValueDict
from ninja.parser import Parser
from ninja.renderers import BaseRenderer
from ninja.security.base import SecuritySchema

from agent.text import clean_json
from tasks import access
from tasks.access import Principal
from tasks.api.errors import too_large


class Identity:
    """ninja awaits it before the operation; what it returns is `who(request)`.

    Without a `scope` of its own an operation needs `read` if it is a GET, else `write`.
    """

    openapi_security_schema = SecuritySchema(type="http", scheme="bearer")
    csrf = True
    """For the docs page: cookie requests need the token."""

    def __init__(self, scope: str | None = None, *, body: bool = True) -> None:
        self._scope = scope
        self._body = body
        """False: the operation reads it, as far as it goes."""

    async def __call__(self, request: HttpRequest) -> Principal:
        if self._body:
            take_body(request)
        principal = await access.identify(request)
        safe = request.method in access.SAFE_METHODS
        principal.need(self._scope or ("read" if safe else "write"))
        return principal


def who(request: HttpRequest) -> Principal:
    """The principal of an operation's request."""
    principal: Principal = vars(request)["auth"]
    return principal


def take_body(request: HttpRequest, most: int | None = None) -> None:
    """Django bounds a body by the length that its header claims; a chunked one claims nothing.
    Raises TooLarge for one of more than `most` bytes; None: as much as the settings say."""
    if request.method in access.SAFE_METHODS:
        return
    limit: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE if most is None else most
    if int(request.META.get("CONTENT_LENGTH") or 0) > limit:
        raise too_large()
    body = request.read(limit + 1)
    if len(body) > limit:
        raise too_large()
    request._body = body  # where `request.body` keeps it, too


class JsonRenderer(BaseRenderer):
    """Compact, non-ASCII as it is: like the events."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        return msgspec.json.encode(data)


class JsonParser(Parser):
    """JSON as the standard has it, and addresses, without text that the database refuses."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        value = json.loads(request.body, parse_constant=_refuse_constant)
        return cast(dict[str, Any], clean_json(value))

    def parse_querydict(
        self, data: MultiValueDict[str, Any], list_fields: list[str], request: HttpRequest
    ) -> dict[str, Any]:
        found = super().parse_querydict(data, list_fields, request)
        return cast(dict[str, Any], clean_json(found))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
