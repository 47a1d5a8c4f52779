"""Asking the person: ask_user. Its call stops the run; the answer is its result."""

from __future__ import annotations

from typing import Any

from agent.errors import ToolFailed
from agent.toolbox import Tool, ToolContext, ToolResult

MAX_QUESTION = 2000
MAX_OPTIONS = 8
MAX_OPTION = 200


def ask_user(arguments: dict[str, Any], context: ToolContext) -> ToolResult:
    """Runs once the person has answered."""
    if not context.answer:
        raise ToolFailed("The person did not answer.")
    return ToolResult(
        ok=True,
        content=f"The person answered: {context.answer}",
        details={"answer": context.answer},
    )


ASK_USER = Tool(
    name="ask_user",
    description=(
        "Ask the person who gave the task. Only for what the files cannot tell and what you cannot "
        "decide yourself; one question at a time. The work stops until the answer comes, which may "
        "take long. Never for permission: calls that need it ask by themselves."
    ),
    parameters={
        "type": "object",
        "properties": {
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUESTION,
                "description": "One question that can be understood without anything else.",
            },
            "options": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": MAX_OPTION},
                "maxItems": MAX_OPTIONS,
                "description": "Answers to choose from; the person may also write another one.",
            },
        },
        "required": ["question"],
        "additionalProperties": False,
    },
    capability="user:read",
    run=ask_user,
    asks=True,
)
