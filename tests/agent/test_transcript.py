"""The fold: events in, a history that a strict provider accepts out."""

from __future__ import annotations

from typing import Any

import pytest

from agent.context import HISTORY_BYTES, fit, size
from agent.events import (
    AgentCompleted,
    ApprovalResolved,
    AssistantDelta,
    AssistantMessageAdded,
    ContextCompacted,
    ErrorInfo,
    ModelCallFinished,
    ModelCallRetried,
    ModelCallStarted,
    StoredEvent,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageAdded,
)
from agent.messages import AssistantMessage, ToolMessage, Usage, UserMessage
from agent.transcript import INTERRUPTED, Transcript
from tests.support.counting import python_calls
from tests.support.questions import question

CREATED = TaskCreated(goal="Compare", session_id="s", trigger="api")


def started(step: int = 1, attempt: int = 1) -> ModelCallStarted:
    return ModelCallStarted(step=step, model="m", attempt=attempt)


def said(text: str, step: int = 1, **more: Any) -> AssistantMessageAdded:
    return AssistantMessageAdded(step=step, block_id=f"b{step}{text}", text=text, **more)


def asked(call_id: str, name: str = "read_file", step: int = 1, **arguments: Any) -> StoredEvent:
    return ToolCallRequested(
        step=step,
        tool_call_id=call_id,
        block_id=f"block-{call_id}",
        index=0,
        name=name,
        arguments=arguments,
        capability="file:read" if name == "read_file" else "file:write",
        risk="low",
        decision="allow",
        rule="",
    )


def finished(step: int = 1, **usage: Any) -> ModelCallFinished:
    return ModelCallFinished(
        step=step, finish_reason="stop", usage=Usage(**usage), cost=None, duration_ms=1
    )


def result(call_id: str, content: str = "AAA", ok: bool = True, step: int = 1) -> StoredEvent:
    return ToolCallFinished(step=step, tool_call_id=call_id, ok=ok, content=content)


def resolved(call_id: str, status: str, kind: str = "call", **more: Any) -> StoredEvent:
    return ApprovalResolved(approval_id="a", kind=kind, tool_call_id=call_id, status=status, **more)


def required(call_id: str, kind: str = "call") -> StoredEvent:
    return question(tool_call_id=call_id, kind=kind)


def test_a_goal_a_reply_and_an_answer_become_messages() -> None:
    transcript = Transcript([CREATED, started(), said("Done."), finished()])
    assert [type(m) for m in transcript.messages()] == [UserMessage, AssistantMessage]
    assert transcript.last_exchange is not None


def test_results_stand_in_the_order_of_the_calls_not_of_their_ends() -> None:
    events: list[StoredEvent] = [CREATED, started(), asked("one"), asked("two"), finished()]
    events += [result("two", "second"), result("one", "first")]
    tools = [m for m in Transcript(events).messages() if isinstance(m, ToolMessage)]
    assert [(m.tool_call_id, m.content) for m in tools] == [("one", "first"), ("two", "second")]


def test_a_call_without_result_is_told_as_interrupted() -> None:
    events: list[StoredEvent] = [
        CREATED,
        started(),
        asked("one"),
        asked("two"),
        finished(),
        result("one"),
    ]
    last = Transcript(events).messages()[-1]
    assert isinstance(last, ToolMessage)
    assert last.content == INTERRUPTED


@pytest.mark.parametrize("where", [3, 4, 5])
def test_a_message_said_during_a_step_comes_after_its_results(where: int) -> None:
    """Position 3 is in the middle of the model call, 5 after its reply."""
    steer = UserMessageAdded(message_id="m", text="Also the invoices", by="alice")
    events: list[StoredEvent] = [CREATED, started(), said("Reading"), asked("one"), finished()]
    events.insert(where, steer)
    events.append(result("one"))
    kinds = [type(m) for m in Transcript(events).messages()]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, UserMessage]


def test_a_message_that_the_model_has_not_seen_is_unanswered() -> None:
    steer = UserMessageAdded(message_id="m", text="Wait", by="alice")
    transcript = Transcript([CREATED, started(), steer, said("Done."), finished()])
    assert transcript.unanswered
    for event in (started(2), said("Waited.", 2), finished(2)):
        transcript.apply(event)
    assert not transcript.unanswered


def test_edited_arguments_are_shown_as_the_calls() -> None:
    events: list[StoredEvent] = [
        CREATED,
        started(),
        asked("one", "write_file", path="a", content="x"),
        finished(),
    ]
    edit = {"path": "a", "content": "EDITED"}
    events += [required("one"), resolved("one", "approved", edited_arguments=edit)]
    transcript = Transcript(events)
    (message,) = [m for m in transcript.messages() if isinstance(m, AssistantMessage)]
    assert message.calls[0].arguments == edit
    assert transcript.calls["one"].asked.arguments == edit


def test_a_stale_answer_leaves_the_question_open() -> None:
    events: list[StoredEvent] = [
        CREATED,
        started(),
        asked("one", "write_file"),
        finished(),
        required("one"),
    ]
    events += [resolved("one", "stale"), required("one")]
    assert Transcript(events).calls["one"].waits


def test_the_attempt_that_was_retried_never_happened() -> None:
    error = ErrorInfo(code="provider_incomplete", message="cut")
    transcript = Transcript([CREATED, started()])
    transcript.apply(AssistantDelta(step=1, block_id="x", offset=0, delta="half"))
    transcript.apply(ModelCallRetried(step=1, attempt=1, error=error, delay_seconds=0))
    assert transcript.partial_events() == []
    for event in (started(1, 2), said("Whole."), finished()):
        transcript.apply(event)
    texts = [m.text for m in transcript.messages() if isinstance(m, AssistantMessage)]
    assert texts == ["Whole."]


def test_what_was_watched_is_the_last_word_of_a_cancelled_run() -> None:
    transcript = Transcript([CREATED, started()])
    for offset, piece in ((0, "Ten "), (4, "words")):
        transcript.apply(AssistantDelta(step=1, block_id="x", offset=offset, delta=piece))
    (partial,) = transcript.closing_events("the task was stopped")
    assert isinstance(partial, AssistantMessageAdded)
    assert (partial.text, partial.partial) == ("Ten words", True)
    transcript.apply(partial)
    transcript.apply(TaskCancelled(by="alice"))
    reply = transcript.messages()[-1]
    assert isinstance(reply, AssistantMessage)
    assert reply.text.startswith("Ten words")
    assert "stopped" in reply.text


def test_closing_gives_every_open_call_a_result() -> None:
    events: list[StoredEvent] = [
        CREATED,
        started(),
        asked("one"),
        asked("two", "write_file"),
        finished(),
    ]
    events.append(ToolCallStarted(step=1, tool_call_id="one"))
    closing = Transcript(events).closing_events("the task was stopped")
    contents = [e.content for e in closing if isinstance(e, ToolCallFinished)]
    assert contents == [INTERRUPTED, "Not run: the task was stopped."]


def test_a_follow_up_counts_its_own_budget_and_keeps_the_history() -> None:
    first: list[StoredEvent] = [
        CREATED,
        started(),
        said("One."),
        finished(input_tokens=5, output_tokens=7),
    ]
    first += [AgentCompleted(final_answer="One."), TaskCompleted()]
    transcript = Transcript([*first, TaskCreated(goal="More", session_id="s", trigger="api")])
    assert transcript.spent.tokens == 0
    assert transcript.last_exchange is None
    assert len(transcript.messages()) == 3


def test_a_request_that_ended_without_an_answer_says_so_to_the_next_one() -> None:
    events: list[StoredEvent] = [CREATED, TaskCancelled(by="alice")]
    events.append(TaskCreated(goal="Again", session_id="s", trigger="api"))
    kinds = [type(m) for m in Transcript(events).messages()]
    assert kinds == [UserMessage, AssistantMessage, UserMessage]


def test_a_retried_effect_may_start_again() -> None:
    events: list[StoredEvent] = [CREATED, started(), asked("one", "write_file"), finished()]
    events += [ToolCallStarted(step=1, tool_call_id="one"), required("one", "unknown_effect")]
    events.append(resolved("one", "approved", "unknown_effect", answer="retry"))
    assert not Transcript(events).calls["one"].started


def steps(first: int, last: int) -> list[StoredEvent]:
    return [
        event
        for step in range(first, last + 1)
        for event in (
            started(step),
            said("I look.", step),
            asked(f"c{step}", step=step, path="a.txt"),
            finished(step),
            result(f"c{step}", step=step),
        )
    ]


def calls_of_a_step(behind: int) -> int:
    """What the history of one more step takes, behind so many."""
    transcript = Transcript([CREATED, *steps(1, behind)])
    size(fit(transcript.messages()))
    for event in steps(behind + 1, behind + 1):
        transcript.apply(event)
    with python_calls() as names:
        history = transcript.messages()
        size(history)
        size(fit(history, HISTORY_BYTES))
    assert len(history) == 1 + 2 * (behind + 1)
    return len(names)


def test_a_step_looks_no_more_at_what_is_settled() -> None:
    assert calls_of_a_step(200) <= calls_of_a_step(2) < 60


def test_settled_messages_are_the_same_until_a_summary_stands_for_them() -> None:
    transcript = Transcript(
        [
            CREATED,
            *steps(1, 2),
            UserMessageAdded(message_id="m", text="And?", by="alice"),
            said("No.", 3),
        ]
    )
    before = transcript.messages()
    transcript.apply(finished(3))
    after = transcript.messages()
    assert all(one is other for one, other in zip(before[:6], after[:6], strict=True))
    transcript.apply(TaskCancelled(by="alice"))
    assert "stopped" in str(transcript.messages()[-1])
    event = ContextCompacted(
        step=4, from_sequence=1, to_sequence=6, covered=2, summary="So far.", kept=["Compare"]
    )
    transcript.apply(event)
    shorter = transcript.messages()
    assert "So far." in str(shorter[0])
    assert shorter[-1] == transcript.messages()[-1]
    transcript.apply(CREATED)
    assert "own words" not in str(transcript.messages()[0])
