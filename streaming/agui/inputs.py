"""What a client of AG-UI sends: `RunAgentInput`, checked by the official types, as our values.

Only what a person asks for counts. The history that a client sends is not believed (the log is the
history), its tools are not called, its state is not kept; its context is data for the model.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from agent.text import mark_untrusted
from streaming.agui.interrupts import reply
from tasks.approvals import Reply
from tasks.canonical import canonical_json
from tasks.errors import Invalid
from tasks.models.threads import MAX_NAME

if TYPE_CHECKING:
    from ag_ui.core import RunAgentInput

NOT_SAID = frozenset({"activity", "developer", "reasoning", "system"})
"""Roles of messages that may stand behind the person's."""
MAX_DETAILS = 20


class Wishes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`forwardedProps.pilothouse`: as in the body of `POST /api/tasks`."""

    mode: str | None = None
    workspace_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunInput:
    """One run that a client asks for."""

    thread: str
    run: str
    parent: str | None
    goal: str
    """Empty when questions are answered."""
    replies: dict[str, Reply]
    """Approval id -> answer."""
    wishes: Wishes
    skipped: tuple[str, ...]
    """Kinds of the parts of the message that are no text."""
    digest: str


def read(body: object) -> RunInput:
    """Raises Invalid. Imports the official package: call it in a thread."""
    given = _checked(body)
    wishes = _wishes(given.forwarded_props)
    resume = given.resume or []
    goal, skipped = ("", ()) if resume else _goal(given)
    said = [entry.model_dump(by_alias=True) for entry in resume]
    return RunInput(
        thread=_name("threadId", given.thread_id),
        run=_name("runId", given.run_id),
        parent=given.parent_run_id,
        goal=goal,
        replies={each.interrupt_id: reply(each.status, each.payload) for each in resume},
        wishes=wishes,
        skipped=skipped,
        digest=_digest([goal, wishes, said]),
    )


def _checked(body: object) -> RunAgentInput:
    from ag_ui.core import RunAgentInput

    try:
        return RunAgentInput.model_validate(body)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        details = {
            ".".join(map(str, each["loc"])) or "body": each["msg"] for each in found[:MAX_DETAILS]
        }
        fields = ", ".join(details)
        raise Invalid("invalid", f"This is no RunAgentInput of AG-UI: {fields}.", details) from None


def _name(field: str, given: str) -> str:
    if 0 < len(given) <= MAX_NAME:
        return given
    message = f"{field} has 1 to {MAX_NAME} characters."
    raise Invalid("invalid", message, {field: message})


def _wishes(given: Any) -> Wishes:
    ours = given.get("pilothouse") if isinstance(given, dict) else None
    try:
        return msgspec.convert({} if ours is None else ours, Wishes)
    except msgspec.ValidationError as error:
        field = "forwardedProps.pilothouse"
        raise Invalid("invalid", f"{field}: {error}", {field: str(error)}) from error


def _goal(given: RunAgentInput) -> tuple[str, tuple[str, ...]]:
    """The person's last message with the context of the application, and what was left out."""
    said = [message for message in given.messages if message.role not in NOT_SAID]
    if not said or said[-1].role != "user":
        message = "The last message must be the user's: it is what this run is to do."
        raise Invalid("invalid", message, {"messages": message})
    content = said[-1].content
    parts: Sequence[Any] = content if isinstance(content, list) else ()
    text = content if isinstance(content, str) else "\n".join(_texts(parts))
    skipped = Counter(part.type for part in parts if part.type != "text")
    if skipped and not text.strip():
        message = f"This agent reads text only, and the message has none beside: {_list(skipped)}."
        raise Invalid("invalid", message, {"messages": message})
    goal = [text]
    if skipped:
        goal.append(f"(Sent along, but not to be read by you: {_list(skipped)}.)")
    if given.context:
        entries = "\n".join(f"{each.description}: {each.value}" for each in given.context)
        goal.append(f"Context from the application:\n{mark_untrusted(entries, 'application')}")
    return "\n\n".join(goal), tuple(skipped)


def _texts(parts: Sequence[Any]) -> list[str]:
    return [part.text for part in parts if part.type == "text"]


def _list(skipped: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in skipped.items())


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
