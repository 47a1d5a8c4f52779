"""Questions to people as AG-UI's interrupts, and the answers that come back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from tasks.approvals import UNKNOWN_EFFECT_ANSWERS, Reply
from tasks.errors import Invalid

APPROVED = {"type": "boolean", "description": "Whether it may be done."}
COMMENT = {"type": "string", "description": "For the model, with the decision."}
ABANDONED = "The question was closed without an answer."
TOLD = (
    "arguments",
    "arguments_digest",
    "capability",
    "diff",
    "kind",
    "name",
    "reason",
    "risk",
    "rule",
    "scopes",
    "standing",
    "target_digest",
)
"""What an approval's card shows."""


def interrupt(question: Mapping[str, Any], call_id: str | None) -> dict[str, Any]:
    """The payload of an `approval_required` as an Interrupt; `call_id` is the call's on this wire."""
    found: dict[str, Any] = {
        "id": question["approval_id"],
        "reason": _reason(question["kind"], call_id),
        "message": _message(question),
        "responseSchema": _schema(question),
        "metadata": {"pilothouse": {name: question[name] for name in TOLD if name in question}},
    }
    if call_id is not None:
        found["toolCallId"] = call_id
    if question.get("expires_at"):
        found["expiresAt"] = question["expires_at"]
    return found


def _reason(kind: str, call_id: str | None) -> str:
    match kind:
        case "call" if call_id is not None:
            return "tool_call"
        case "question":
            return "input_required"
        case "limit":
            return "confirmation"
        case _:
            return f"pilothouse:{kind}"


def _message(question: Mapping[str, Any]) -> str:
    if question["kind"] == "question":
        asked = question["arguments"].get("question")
        return asked if isinstance(asked, str) else question["reason"]
    return question["reason"] or f"May {question['name']} be called?"


def _schema(question: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of the answer."""
    fields: dict[str, Any] = {"approved": APPROVED, "comment": COMMENT}
    required = ["approved"]
    match question["kind"]:
        case "call":
            fields["editedArgs"] = {
                "type": "object",
                "description": "Instead of the arguments, as a whole.",
            }
            if len(question.get("scopes", ())) > 1:
                fields["scope"] = {"enum": question["scopes"]}
        case "question":
            fields = {"answer": {"type": "string", "minLength": 1}, "comment": COMMENT}
            if question.get("options"):
                fields["answer"] |= {"examples": question["options"]}
            required = ["answer"]
        case "unknown_effect":
            fields["answer"] = {"enum": list(UNKNOWN_EFFECT_ANSWERS)}
    return {"type": "object", "properties": fields, "required": required}


class _Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    approved: bool | None = None
    """Not needed with an `answer`."""
    editedArgs: dict[str, Any] | None = None  # noqa: N815 - AG-UI's name
    answer: str = ""
    comment: str = ""
    scope: Literal["once", "task", "session", "always"] = "once"


def reply(status: str, payload: object) -> Reply:
    """A resume entry as the decision that it is. Raises Invalid."""
    if status == "cancelled":
        return Reply(decision="reject", comment=ABANDONED)
    try:
        said = msgspec.convert(payload, _Answer)
    except msgspec.ValidationError as error:
        raise Invalid("invalid", f"resume.payload: {error}", {"resume": str(error)}) from error
    approved = bool(said.answer) if said.approved is None else said.approved
    if said.approved is None and not said.answer:
        message = "Say approved, true or false, or give an answer."
        raise Invalid("invalid", f"resume.payload: {message}", {"resume": message})
    return Reply(
        decision="approve" if approved else "reject",
        edited_arguments=said.editedArgs,
        answer=said.answer,
        comment=said.comment,
        scope=said.scope,
    )
