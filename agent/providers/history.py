"""What every strict provider demands of a history, as one check. Pure.

Scripted providers make it at every request and property tests make it after every scenario, so a
history that a real provider would refuse is found here first.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.messages import (
    AssistantMessage,
    Block,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    UserMessage,
)


class HistoryInvalid(AssertionError):
    """The history breaks a rule of strict providers."""


def check_history(messages: Sequence[Message]) -> None:
    """Raises HistoryInvalid with the first broken rule."""
    _demand(bool(messages), "the history is empty")
    _demand(isinstance(messages[0], UserMessage), "the first message is not the user's")
    _demand(not isinstance(messages[-1], AssistantMessage), "the last message is the assistant's")
    seen: set[str] = set()
    waiting: list[ToolCall] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            waiting = _answered(message, waiting)
            continue
        missing = ", ".join(call.tool_call_id for call in waiting)
        _demand(not waiting, f"calls without a result right behind them: {missing}")
        if isinstance(message, AssistantMessage):
            _check_assistant(message, seen)
            waiting = list(message.calls)
        else:
            _check_text(message.text)
    _demand(not waiting, "the last calls have no results")


def _answered(message: ToolMessage, waiting: list[ToolCall]) -> list[ToolCall]:
    _demand(bool(waiting), f"result {message.tool_call_id!r} without an open call")
    call, *rest = waiting
    same = message.tool_call_id == call.tool_call_id
    _demand(same, f"result {message.tool_call_id!r} stands where {call.tool_call_id!r} belongs")
    _demand(message.name == call.name, f"the result of {call.name!r} is named {message.name!r}")
    _check_text(message.content)
    return rest


def _check_assistant(message: AssistantMessage, seen: set[str]) -> None:
    _demand(bool(message.blocks), "an assistant message without blocks")
    for block in message.blocks:
        _check_block(block)
    for call in message.calls:
        _demand(bool(call.tool_call_id), f"a call of {call.name!r} without id")
        _demand(call.tool_call_id not in seen, f"the id {call.tool_call_id!r} is used twice")
        seen.add(call.tool_call_id)


def _check_block(block: Block) -> None:
    match block:
        case Text(text=text) | Reasoning(text=text):
            _check_text(text)
        case ToolCall():
            sound = block.arguments is not None or bool(block.problem)
            _demand(sound, f"a call of {block.name!r} without arguments and without a problem")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        _demand(False, "text that is not UTF-8")
    _demand("\x00" not in text, "text with NUL")


def _demand(fine: bool, rule: str) -> None:
    if not fine:
        raise HistoryInvalid(rule)
