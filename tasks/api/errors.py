"""Every refusal of the API in one shape: `{"error": {"code", "message", "details"?}}`.

Also for what never reaches an operation: unknown paths, wrong methods, bodies that are not JSON,
and bugs, which are logged and tell nothing of themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any

import msgspec
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from tasks.errors import Invalid, NotFound, NotIdentified, ServiceError, TooLarge, TooMany
from tasks.writer import WriterUnavailable

logger = logging.getLogger(__name__)

Raised = Exception | type[Exception]
"""What ninja's handlers are declared to get; it is always an exception."""
View = Callable[..., Awaitable[HttpResponseBase] | HttpResponseBase]


def answer(body: object, status: int = 200) -> HttpResponse:
    """Any JSON answer. Compact, non-ASCII as it is."""
    return raw(msgspec.json.encode(body), status)


def raw(body: bytes, status: int = 200) -> HttpResponse:
    """An answer that is JSON already."""
    return HttpResponse(body, status=status, content_type="application/json")


def body_of(error: ServiceError) -> dict[str, Any]:
    """The inner object: also of one item in the answer to a batch."""
    body = {"code": error.code, "message": error.message}
    return body if error.details is None else {**body, "details": error.details}


def refusal(error: ServiceError) -> HttpResponse:
    response = answer({"error": body_of(error)}, error.status)
    if isinstance(error, NotIdentified):
        response["WWW-Authenticate"] = "Bearer"
    if isinstance(error, TooMany):
        response["Retry-After"] = str(error.retry_after)
    return response


def install(api: NinjaAPI) -> None:
    """Make `api` answer every exception of its operations."""
    for kind in (ServiceError, ValidationError, HttpError, SuspiciousOperation):
        api.add_exception_handler(kind, _refused)
    api.add_exception_handler(WriterUnavailable, unavailable)
    api.add_exception_handler(OperationalError, unavailable)
    api.add_exception_handler(Exception, bug)


def _refused(request: HttpRequest, error: Raised) -> HttpResponse:
    return refusal(_as_ours(error))


def _as_ours(error: Raised) -> ServiceError:
    match error:
        case ServiceError():
            return error
        case ValidationError():
            return _invalid(error)
        case RequestDataTooBig():
            return too_large()
        case HttpError():  # ninja's, for a body that it cannot parse and for nothing else here
            return Invalid("invalid", "The body is not JSON.")
        case _:
            return Invalid("invalid", "The request cannot be read.")


def too_large() -> TooLarge:
    return TooLarge("too_large", "The body is larger than this server reads.")


def _invalid(error: ValidationError) -> ServiceError:
    details = {_field(found["loc"]): _sentence(found) for found in error.errors}
    fields = ", ".join(sorted(details))
    return Invalid("invalid", f"This cannot be done with: {fields}.", details)


def _field(location: Iterable[object]) -> str:
    """("body", "payload", "results", 0, "id") -> "results.0.id"."""
    source, *path = (str(part) for part in location)
    if source == "body":
        path = path[1:]
    return ".".join(path) or "body"


def _sentence(found: Mapping[str, Any]) -> str:
    if found["type"] == "extra_forbidden":
        return "There is no such field."
    return str(found["msg"])


def unavailable(request: HttpRequest, error: Raised) -> HttpResponse:
    """The database does not answer: another try may succeed."""
    logger.error(
        "%s %s: the database failed", request.method, request.path, exc_info=_raised(error)
    )
    message = "The database is not available at the moment."
    if getattr(error, "unknown", False):
        message += " It is not known whether the change was stored."
    response = answer({"error": {"code": "unavailable", "message": message}}, 503)
    response["Retry-After"] = "1"
    return response


def bug(request: HttpRequest, error: Raised) -> HttpResponse:
    logger.error("%s %s failed", request.method, request.path, exc_info=_raised(error))
    message = "Something went wrong here. It was written to the server's log."
    return answer({"error": {"code": "internal", "message": message}}, 500)


def _raised(error: Raised) -> BaseException | None:
    return error if isinstance(error, BaseException) else None


async def unknown_path(request: HttpRequest, path: str = "") -> HttpResponse:
    """What no operation serves."""
    return refusal(NotFound("path"))


def in_our_shape(view: View) -> Callable[..., Coroutine[Any, Any, HttpResponseBase]]:
    """A method that a path does not serve is refused by ninja as plain text."""

    async def shaped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        found = view(request, *args, **kwargs)
        response = found if isinstance(found, HttpResponseBase) else await found
        if not isinstance(response, HttpResponseNotAllowed):
            return response
        allowed = response["Allow"]
        message = f"This path serves {allowed}."
        refused = answer({"error": {"code": "method_not_allowed", "message": message}}, 405)
        refused["Allow"] = allowed
        return refused

    vars(shaped)["csrf_exempt"] = True  # who asks, and from where, is judged by tasks.access
    return shaped
