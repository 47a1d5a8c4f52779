"""What the floor above serves in the same way, for the OpenAPI document: AG-UI (docs/agui.md)."""

from __future__ import annotations

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from tasks.models.threads import MAX_NAME
from tasks.threads import MAX_ANSWERS

_NAME = {"type": "string", "minLength": 1, "maxLength": MAX_NAME}
_INPUT = {
    "type": "object",
    "required": ["threadId", "runId", "messages"],
    "description": "RunAgentInput of AG-UI 1.0: https://docs.ag-ui.com/spec/1.0/schema",
    "properties": {
        "threadId": _NAME,
        "runId": _NAME,
        "parentRunId": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}},
        "context": {"type": "array", "items": {"type": "object"}},
        "resume": {
            "type": "array",
            "maxItems": MAX_ANSWERS,
            "items": {
                "type": "object",
                "required": ["interruptId", "status"],
                "properties": {
                    "interruptId": {"type": "string"},
                    "status": {"enum": ["resolved", "cancelled"]},
                    "payload": {},
                },
            },
        },
        "forwardedProps": {
            "type": "object",
            "properties": {
                "pilothouse": {
                    "type": "object",
                    "properties": {
                        "mode": {"type": "string"},
                        "workspace_id": {"type": "string"},
                    },
                }
            },
        },
    },
}


class Api(NinjaAPI):
    """With the operations that ninja does not serve itself in its document."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**options)
        schema["paths"] |= _paths()
        return schema


def _paths() -> dict[str, Any]:
    begins = _operation(
        "run_agent",
        "AG-UI: begin a run, or answer the questions that ended the one before",
        {"text/event-stream": {"schema": {"type": "string"}}},
        404,
        409,
        413,
        429,
    )
    begins["requestBody"] = {"required": True, "content": {"application/json": {"schema": _INPUT}}}
    says = _operation(
        "show_capabilities",
        "AG-UI: what this agent does",
        {"application/json": {"schema": {"type": "object"}}},
    )
    return {"/agui": {"post": begins}, "/agui/capabilities": {"get": says}}


def _operation(name: str, summary: str, content: Any, *refusals: int) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}
    refused = {
        str(status): {"description": "Refused", "content": error}
        for status in (400, 401, 403, *refusals)
    }
    return {
        "operationId": f"streaming_agui_{name}",
        "summary": summary,
        "tags": ["agui"],
        "parameters": [],
        "responses": {"200": {"description": "OK", "content": content}, **refused},
        "security": [{"Identity": []}],
    }
