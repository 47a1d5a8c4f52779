"""How a request becomes the call of an operation, and what it returns the answer.

ninja makes the models that check requests from the operation's signature, and writes the document
from it. Its own way from one to the other is for APIs of any kind: it makes an answer before there
is one, copies every header to look for one, and finds out each time whether the identity is async.
Ours are all alike, which leaves a third of it. Models, errors and everything unusual stay ninja's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pydantic
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja.errors import ValidationErrorContext
from ninja.operation import AsyncOperation
from ninja.params import models
from ninja.responses import Status

from tasks.api.edge import Identity

Run = Callable[..., Awaitable[HttpResponseBase]]


def directly(run: Run) -> Run:
    """For `NinjaAPI.add_decorator(…, "view")`: stands in for the `run` of each of its operations.
    Raises AssertionError for one that asks for what only ninja's own way does."""
    operation: AsyncOperation = cast(Any, run).__self__
    _check(operation)
    api, returned = operation.api, _returned(operation)

    async def call(request: HttpRequest, **path: str) -> HttpResponseBase:
        try:
            for identify in operation.auth_callbacks:
                vars(request)["auth"] = await identify(request)
            asked = _asked(operation, request, path)
            result = await operation.view_func(request, **asked)
            answer: Status[Any] = result if isinstance(result, Status) else Status(200, result)
            kind = returned.get(answer.status_code)
            if kind is not None and isinstance(answer.value, kind):
                data = answer.value.model_dump()
                return api.create_response(request, data, status=answer.status_code)
            unmade = api.create_temporal_response(request)
            return operation._result_to_response(request, result, unmade)
        except Exception as error:  # noqa: BLE001 - as ninja: each kind has its answer in `errors`
            return api.on_exception(request, error)

    return call


def _check(operation: AsyncOperation) -> None:
    """Before there is any request: what would be left out without a word, a throttle above all, or
    an identity that answers with None instead of refusing."""
    assert operation.is_async
    assert all(isinstance(identify, Identity) for identify in operation.auth_callbacks)
    unheeded = (
        *(operation.throttle_objects, operation.stream_format, operation.signature.response_arg),
        *(operation.by_alias, operation.exclude_none),
        *(operation.exclude_unset, operation.exclude_defaults),
    )
    assert not any(unheeded)


def _asked(operation: AsyncOperation, request: HttpRequest, path: dict[str, str]) -> dict[str, Any]:
    """The arguments of the operation. Raises ninja's ValidationError with all that is wrong."""
    arguments: dict[str, Any] = {}
    wrong = []
    for model in operation.models:
        try:
            arguments |= vars(model.resolve(request, operation.api, path))
        except pydantic.ValidationError as error:
            wrong.append(ValidationErrorContext(pydantic_validation_error=error, model=model))
    if wrong:
        raise operation.api.validation_error_from_error_contexts(wrong)
    return arguments


def _returned(operation: AsyncOperation) -> dict[int, type[pydantic.BaseModel]]:
    """By status what is declared to be answered, where that is one model."""
    declared = {
        status: model.model_fields["response"].annotation
        for status, model in operation.response_models.items()
        if model is not None
    }
    return {
        status: kind
        for status, kind in declared.items()
        if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
    }


class HeaderModel(models.HeaderModel):
    """Looks for the headers that are asked for, and at no others."""

    @classmethod
    def get_request_data(
        cls, request: HttpRequest, api: Any, path_params: dict[str, Any]
    ) -> dict[str, Any]:
        found = {name: request.META.get(_meta_name(name)) for name in cls.__ninja_flatten_map__}
        return {name: text for name, text in found.items() if text is not None}


class Header(models.Header):  # type: ignore[misc]  # final for pydantic, but not for ninja
    """A parameter that comes in a header. ninja names it, as its source, after this class."""

    _model = HeaderModel


def _meta_name(header: str) -> str:
    """What Django calls a header; those of the body are none of ours."""
    return f"HTTP_{header.upper().replace('-', '_')}"
