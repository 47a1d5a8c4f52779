"""The conversation so far, folded from events, and nothing else.

`apply()` takes stored events in their order; the engine applies its own the moment they are stored,
a later run applies the same ones from the log, so both hold the same messages by construction.
Whatever the cut, `messages()` is a history that a strict provider accepts: every call has exactly
one result, right after the message that asked for it, in the order of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from agent.events import (
    AgentCompleted,
    ApprovalRequired,
    ApprovalResolved,
    AssistantDelta,
    AssistantMessageAdded,
    BudgetExceeded,
    BudgetWarning,
    Delta,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningMessage,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageAdded,
)
from agent.messages import (
    AssistantMessage,
    Block,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)

INTERRUPTED = "Interrupted: the outcome of this call is unknown. Check before you rely on it."

REPEATED = (
    "\n\n[This is the same call with the same result as before, for at least the third time. "
    "Repeating it will not help: do something else, or say what is missing.]"
)


@dataclass
class Call:
    """One call of a reply and its journal."""

    step: int
    asked: ToolCall
    """As the model asked for it; `arguments` are what is (to be) executed, edits included."""
    capability: str
    risk: str
    started: bool = False
    result: ToolCallFinished | None = None
    ask: ApprovalRequired | None = None
    """The newest question about it."""
    answer: ApprovalResolved | None = None
    """The reply to `ask`; None while it is pending."""

    @property
    def waits(self) -> bool:
        return self.ask is not None and self.answer is None and self.result is None

    @property
    def key(self) -> bytes:
        """Equal for calls that would do the same."""
        return msgspec.json.encode([self.asked.name, self.asked.arguments], order="sorted")

    def message(self) -> ToolMessage:
        content = INTERRUPTED if self.result is None else self.result.content
        return ToolMessage(
            tool_call_id=self.asked.tool_call_id, name=self.asked.name, content=content
        )


@dataclass
class Exchange:
    """One reply of the model with the calls it asked for."""

    step: int
    blocks: list[Block] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    note: str = ""
    """Why the text ends where it ends, when something cut it off."""

    def messages(self) -> Iterable[Message]:
        blocks = [self._current(block) for block in self.blocks]
        if self.note:
            blocks.append(Text(block_id="", text=f"\n[{self.note}]"))
        if any(isinstance(block, Text | ToolCall) for block in blocks):
            yield AssistantMessage(blocks=tuple(blocks))
            yield from (call.message() for call in self.calls)

    def _current(self, block: Block) -> Block:
        """A call's block shows the arguments that were really executed."""
        if isinstance(block, ToolCall):
            return next(call.asked for call in self.calls if call.asked.block_id == block.block_id)
        return block


@dataclass
class Spent:
    """What the current task used up, over all its runs."""

    steps: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    has_cost: bool = False
    seconds: float = 0.0
    """Working time of earlier runs; set by whoever knows the clock."""

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, event: ModelCallFinished) -> None:
        usage: Usage = event.usage
        self.steps = max(self.steps, event.step)
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.reasoning_tokens += usage.reasoning_tokens
        self.cached_tokens += usage.cached_tokens
        self.estimated = self.estimated or usage.estimated
        if event.cost is not None:
            self.cost += event.cost
            self.has_cost = True


class Transcript:
    """Events in, messages out. Not thread-safe; one owner."""

    def __init__(self, events: Iterable[StoredEvent] = ()) -> None:
        self.entries: list[UserMessage | Exchange] = []
        self.calls: dict[str, Call] = {}
        """Every call of the session by its id."""
        self.spent = Spent()
        self.warned: set[str] = set()
        self.final_answer: str | None = None
        self._task_begins = 0
        """Index of the current task's goal in `entries`."""
        self._open: Exchange | None = None
        """The reply being stored: its model call has begun and not finished."""
        self._held: list[UserMessage] = []
        """Said while a model call was under way: the model sees it after that reply."""
        self._partial: dict[str, list[str]] = {}
        self._partial_step = 0
        for event in events:
            self.apply(event)

    # ── folding ──────────────────────────────────────────────────────────────────────────────

    def apply(self, event: StoredEvent) -> None:
        handler = _HANDLERS.get(type(event))
        if handler is not None:
            handler(self, event)

    def watch(self, delta: Delta) -> None:
        """Remember unfinished text, in case a cancel makes it the last word."""
        if isinstance(delta, AssistantDelta):
            self._partial_step = delta.step
            self._partial.setdefault(delta.block_id, []).append(delta.delta)

    def _task_created(self, event: TaskCreated) -> None:
        self.spent = Spent()
        self.warned = set()
        self.final_answer = None
        self._close_reply()
        self._task_begins = len(self.entries)
        self.entries.append(UserMessage(text=event.goal))

    def _user_message(self, event: UserMessageAdded) -> None:
        said = UserMessage(text=event.text)
        if self._open is not None:
            self._held.append(said)
        else:
            self.entries.append(said)

    def _model_call_started(self, event: ModelCallStarted) -> None:
        self._close_reply()
        self._open = Exchange(step=event.step)

    def _model_call_retried(self, event: ModelCallRetried) -> None:
        self._partial.clear()
        self._open = None
        self._release_held()

    def _model_call_finished(self, event: ModelCallFinished) -> None:
        self.spent.add(event)
        self._close_reply()

    def _reasoning(self, event: ReasoningMessage) -> None:
        block = Reasoning(
            block_id=event.block_id, text=event.text, provider_data=_opaque(event.provider_data)
        )
        self._reply(event.step).blocks.append(block)

    def _assistant(self, event: AssistantMessageAdded) -> None:
        reply = self._reply(event.step)
        data = _opaque(event.provider_data)
        reply.blocks.append(Text(block_id=event.block_id, text=event.text, provider_data=data))
        if event.partial is True:
            reply.note = "cut off here"

    def _requested(self, event: ToolCallRequested) -> None:
        asked = ToolCall(
            block_id=event.block_id,
            tool_call_id=event.tool_call_id,
            index=event.index,
            name=event.name,
            arguments=event.arguments,
            raw_arguments="" if event.raw_arguments is UNSET else event.raw_arguments,
            problem="" if event.problem is UNSET else event.problem,
            provider_data=_opaque(event.provider_data),
        )
        call = Call(step=event.step, asked=asked, capability=event.capability, risk=event.risk)
        reply = self._reply(event.step)
        reply.blocks.append(asked)
        reply.calls.append(call)
        self.calls[asked.tool_call_id] = call

    def _started(self, event: ToolCallStarted) -> None:
        self.calls[event.tool_call_id].started = True

    def _finished(self, event: ToolCallFinished) -> None:
        self.calls[event.tool_call_id].result = event

    def _approval_required(self, event: ApprovalRequired) -> None:
        call = self.calls[event.tool_call_id]
        call.ask, call.answer = event, None

    def _approval_resolved(self, event: ApprovalResolved) -> None:
        call = self.calls[event.tool_call_id]
        if event.status == "stale":
            return
        call.answer = event
        if event.status == "approved" and event.edited_arguments is not None:
            call.asked = msgspec.structs.replace(
                call.asked, arguments=event.edited_arguments, raw_arguments="", problem=""
            )
        if event.status == "approved" and event.answer == "retry":
            call.started = False

    def _warning(self, event: BudgetWarning) -> None:
        self.warned.add(event.which)

    def _agent_completed(self, event: AgentCompleted) -> None:
        self.final_answer = event.final_answer

    def _ended(self, event: StoredEvent) -> None:
        self._close_reply()
        words = _ENDINGS.get(type(event))
        if words is None:
            return
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Exchange) and not last.calls and last.blocks:
            last.note = words
        else:
            self.entries.append(Exchange(step=self.spent.steps, note=words))

    def _reply(self, step: int) -> Exchange:
        if self._open is None:
            self._open = Exchange(step=step)
        return self._open

    def _close_reply(self) -> None:
        if self._open is not None and self._open.blocks:
            self.entries.append(self._open)
        self._open = None
        self._partial.clear()
        self._release_held()

    def _release_held(self) -> None:
        self.entries.extend(self._held)
        self._held.clear()

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def messages(self) -> list[Message]:
        """The history for the next model call."""
        entries: list[UserMessage | Exchange] = list(self.entries)
        if self._open is not None and self._open.blocks:
            entries.append(self._open)
        found: list[Message] = []
        for entry in [*entries, *self._held]:
            found.extend([entry] if isinstance(entry, UserMessage) else entry.messages())
        return found

    @property
    def last_exchange(self) -> Exchange | None:
        """The newest reply of the current task, if its model has replied."""
        if self._open is not None and self._open.blocks:
            return self._open
        current = self.entries[self._task_begins :]
        return next((entry for entry in reversed(current) if isinstance(entry, Exchange)), None)

    @property
    def open_calls(self) -> list[Call]:
        """Calls of the newest reply that have no result yet, in order."""
        last = self.last_exchange
        return [] if last is None else [call for call in last.calls if call.result is None]

    @property
    def current_calls(self) -> list[Call]:
        """All calls of the current task."""
        current = self.entries[self._task_begins :]
        return [call for entry in current if isinstance(entry, Exchange) for call in entry.calls]

    @property
    def unanswered(self) -> bool:
        """Somebody said something that the model has not seen."""
        last = self.entries[-1] if self.entries else None
        return bool(self._held) or isinstance(last, UserMessage)

    def knows_block(self, block_id: str) -> bool:
        """Whether this text is part of the history already."""
        replies = [*self.entries, self._open]
        return any(
            block.block_id == block_id
            for reply in replies
            if isinstance(reply, Exchange)
            for block in reply.blocks
        )

    def rejections(self, call: Call) -> int:
        """How often a person said no to exactly this call in this task."""
        return sum(
            1
            for other in self.current_calls
            if other.answer is not None
            and other.answer.kind == "call"
            and other.answer.status == "rejected"
            and other.key == call.key
        )

    def repeats(self, call: Call) -> int:
        """How many finished calls right before `call` were the same with the same result."""
        earlier = self._finished_before(call)
        count = 0
        for other in reversed(earlier):
            if other.key != call.key or not _same_outcome(other, earlier[-1]):
                break
            count += 1
            if other.answer is not None and other.answer.kind == "limit":
                break
        return count

    def repeated_result(self, call: Call) -> str | None:
        """What the calls that `repeats` counts brought; None when there is none."""
        earlier = self._finished_before(call)
        result = earlier[-1].result if earlier else None
        return None if result is None else result.content.removesuffix(REPEATED)

    def _finished_before(self, call: Call) -> list[Call]:
        return [
            other for other in self.current_calls if other.result is not None and other is not call
        ]

    # ── endings ──────────────────────────────────────────────────────────────────────────────

    def partial_events(self) -> list[StoredEvent]:
        """The text of the reply that is being watched, as its last word."""
        return [
            AssistantMessageAdded(
                step=self._partial_step, block_id=block_id, text="".join(pieces), partial=True
            )
            for block_id, pieces in self._partial.items()
        ]

    def closing_events(self, why: str) -> list[StoredEvent]:
        """What makes the history whole when the run is cut here: unfinished text as partial, a
        result for every call without one."""
        return self.partial_events() + [
            ToolCallFinished(
                step=call.step,
                tool_call_id=call.asked.tool_call_id,
                ok=False,
                content=INTERRUPTED if call.started else f"Not run: {why}.",
            )
            for call in self.open_calls
        ]


def _opaque(data: Any) -> Any:
    return None if data is UNSET else data


def _same_outcome(one: Call, other: Call) -> bool:
    return (
        one.result is not None
        and other.result is not None
        and one.result.content.removesuffix(REPEATED) == other.result.content.removesuffix(REPEATED)
    )


_ENDINGS: dict[type, str] = {
    TaskFailed: "this request failed before it was answered",
    TaskCancelled: "this request was stopped before it was answered",
    BudgetExceeded: "this request reached a limit before it was answered",
}

_HANDLERS: dict[type, Callable[[Transcript, Any], None]] = {
    TaskCreated: Transcript._task_created,
    UserMessageAdded: Transcript._user_message,
    ModelCallStarted: Transcript._model_call_started,
    ModelCallRetried: Transcript._model_call_retried,
    ModelCallFinished: Transcript._model_call_finished,
    ReasoningMessage: Transcript._reasoning,
    AssistantMessageAdded: Transcript._assistant,
    ToolCallRequested: Transcript._requested,
    ToolCallStarted: Transcript._started,
    ToolCallFinished: Transcript._finished,
    ApprovalRequired: Transcript._approval_required,
    ApprovalResolved: Transcript._approval_resolved,
    BudgetWarning: Transcript._warning,
    AgentCompleted: Transcript._agent_completed,
    TaskCompleted: Transcript._ended,
    TaskFailed: Transcript._ended,
    TaskCancelled: Transcript._ended,
    BudgetExceeded: Transcript._ended,
}
