"""What a client of AG-UI sends: `RunAgentInput`, checked by the official types, as our values.

Only what a person asks for counts. The history that a client sends is not believed (the log is the
history), its tools are not called, its state is not kept; its context is data for the model.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pydantic import ValidationError

from streaming.agui.interrupts import reply
from tasks import goals
from tasks.approvals import Reply
from tasks.canonical import canonical_json
from tasks.errors import Invalid
from tasks.models.threads import MAX_NAME
from tasks.threads import MAX_ANSWERS

if TYPE_CHECKING:
    from ag_ui.core import ResumeEntry, RunAgentInput

NOT_SAID = frozenset({"activity", "developer", "reasoning", "system"})
"""Roles of messages that may stand behind the person's."""
ROLES = NOT_SAID | {"assistant", "tool", "user"}
RETIRED = "binary"
"""A part that 1.0 no longer has: its sender would wait for it to be read."""
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
    """What was left out: where it stood, and what it was."""
    digest: str


def read(body: object) -> RunInput:
    """Raises Invalid. Imports the official package: call it in a thread."""
    known = _Recognised(body)
    given = _checked(known.body)
    wishes = _wishes(given.forwarded_props)
    resume = _resume(given)
    goal = "" if resume else _goal(given, known)
    said = [entry.model_dump(by_alias=True) for entry in resume]
    return RunInput(
        thread=_name("threadId", given.thread_id),
        run=_name("runId", given.run_id),
        parent=given.parent_run_id,
        goal=goal,
        replies={each.interrupt_id: reply(each.status, each.payload) for each in resume},
        wishes=wishes,
        skipped=tuple(known.skipped[:MAX_DETAILS]),
        digest=_digest([goal, wishes, said]),
    )


class _Recognised:
    """A body without media, and without the messages and parts of a later version, which are no
    mistake. What is wrong stays in it, to be refused."""

    def __init__(self, body: object) -> None:
        self.body = body
        self.skipped: list[str] = []
        """Where each stood, and what it was."""
        self.unseen: list[Counter[str]] = []
        """By message that is left: the kinds of its parts that are not."""
        if isinstance(body, dict) and isinstance(body.get("messages"), list):
            self.body = {**body, "messages": list(self._messages(body["messages"]))}

    def _messages(self, messages: list[Any]) -> Iterator[Any]:
        for number, message in enumerate(messages):
            said = message if isinstance(message, dict) else {}
            role, content = said.get("role"), said.get("content")
            if isinstance(role, str) and role not in ROLES:
                self.skipped.append(f"messages.{number}: {role}")
                continue
            self.unseen.append(Counter())
            if isinstance(content, list):
                message = {**said, "content": list(self._texts(f"messages.{number}", content))}
            yield message

    def _texts(self, place: str, parts: list[Any]) -> Iterator[Any]:
        for number, part in enumerate(parts):
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                self.skipped.append(f"{place}.content.{number}: {kind}")
                self.unseen[-1][kind] += 1
            else:
                yield part


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


def _resume(given: RunAgentInput) -> Sequence[ResumeEntry]:
    entries = given.resume or []
    if len(entries) > MAX_ANSWERS:
        message = f"A run answers {MAX_ANSWERS} questions at most."
        raise Invalid("invalid", message, {"resume": message})
    return entries


def _wishes(given: Any) -> Wishes:
    ours = given.get("pilothouse") if isinstance(given, dict) else None
    try:
        return msgspec.convert({} if ours is None else ours, Wishes)
    except msgspec.ValidationError as error:
        field = "forwardedProps.pilothouse"
        raise Invalid("invalid", f"{field}: {error}", {field: str(error)}) from error


def _goal(given: RunAgentInput, known: _Recognised) -> str:
    """The person's last message with the context of the application."""
    all_said = zip(given.messages, known.unseen, strict=True)
    said = [each for each in all_said if each[0].role not in NOT_SAID]
    if not said or said[-1][0].role != "user":
        message = "The last message must be the user's: it is what this run is to do."
        raise Invalid("invalid", message, {"messages": message})
    last, unseen = said[-1]
    content = last.content
    text = content if isinstance(content, str) else "\n".join(_texts(content))
    if unseen[RETIRED] or (unseen and not text.strip()):
        message = f"This agent reads text only; the message has {_list(unseen)}."
        raise Invalid("invalid", message, {"messages": message})
    goal = text
    if unseen:
        goal += f"\n\n(Sent along, but not to be read by you: {_list(unseen)}.)"
    if given.context:
        entries = "\n".join(f"{each.description}: {each.value}" for each in given.context)
        goal = goals.with_data(goal, entries, goals.APPLICATION)
    return goal


def _texts(parts: Any) -> list[str]:
    return [part.text for part in parts]


def _list(skipped: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in skipped.items())


def _digest(value: object) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
