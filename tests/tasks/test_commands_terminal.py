"""What a person sees of a task, and the order in which it comes."""

from __future__ import annotations

import os
from io import StringIO
from typing import Any
from uuid import UUID

import pytest

from agent.events import (
    AgentEvent,
    ApprovalRequired,
    AssistantDelta,
    AssistantMessageAdded,
    ErrorInfo,
    ModelCallRetried,
    ModelCallStarted,
    ReasoningDelta,
    ReasoningMessage,
    TaskCompleted,
    ToolCallFinished,
    ToolCallRequested,
    UserMessageAdded,
)
from agent.text import visible
from tasks import events
from tasks.approvals import Reply
from tasks.events import Row
from tasks.management.asking import Asker, Keyboard
from tasks.management.feed import Feed
from tasks.management.terminal import Screen, describe
from tasks.models import Task
from tasks.writer import writer
from tests.support.questions import question
from tests.support.rows import make_task


def shown(*what: AgentEvent) -> str:
    out = StringIO()
    screen = Screen(out)
    for event in what:
        screen.show(event)
    return out.getvalue()


def delta(text: str, offset: int = 0, block: str = "b") -> AssistantDelta:
    return AssistantDelta(step=1, block_id=block, offset=offset, delta=text)


def message(text: str, block: str = "b") -> AssistantMessageAdded:
    return AssistantMessageAdded(step=1, block_id=block, text=text)


def requested(**arguments: Any) -> ToolCallRequested:
    return ToolCallRequested(
        step=1,
        tool_call_id="c",
        block_id="t",
        index=0,
        name="read_file",
        arguments=arguments,
        capability="file:read",
        risk="low",
        decision="allow",
        rule="default",
    )


def finished(ok: bool = True, content: str = "", **details: Any) -> ToolCallFinished:
    return ToolCallFinished(step=1, tool_call_id="c", ok=ok, content=content, details=details)


def test_text_is_shown_once_whether_it_came_in_pieces_whole_or_both() -> None:
    assert shown(delta("Hel"), delta("lo", 3), message("Hello")) == "Hello\n"
    assert shown(message("Hello")) == "Hello\n"
    assert shown(delta("Hel"), message("Hello")) == "Hello\n"


def test_a_long_line_is_not_broken_in_a_pipe() -> None:
    assert shown(message("word " * 100)).count("\n") == 1


def test_a_thought_is_one_line_above_the_text_that_follows_it() -> None:
    thought = ReasoningDelta(step=1, block_id="r", offset=0, delta="First\n\nthis")
    stored = ReasoningMessage(step=1, block_id="r", text="First\n\nthis")
    assert shown(thought, delta("Hi"), stored, message("Hi")) == "  thought: First this\nHi\n"
    assert shown(stored) == "  thought: First this\n"


def test_a_call_is_one_line_with_what_came_of_it() -> None:
    said = shown(requested(start=1, path="a.csv"), finished(lines=1, bytes=2048))
    assert said == "  ✓ read_file a.csv start=1  1 line, 2,048 bytes\n"
    said = shown(requested(path="a.csv"), finished(ok=False, content="No such file.\nTry b."))
    assert said == "  ✗ read_file a.csv  No such file.\n"


def test_a_retry_says_why_and_when() -> None:
    error = ErrorInfo(code="x", message="The model is overloaded.")
    retried = ModelCallRetried(step=1, attempt=1, error=error, delay_seconds=2)
    said = shown(ModelCallStarted(step=1, model="m", attempt=1), delta("Hal"), retried)
    assert said == "\nstep 1\nHal\n  ! The model is overloaded. Trying again in 2 s.\n"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[2Kgone", "<1B>[2Kgone"),
        ("a\rb", "a<0D>b"),
        ("a\r\nb", "a\nb"),
        ("\u202etxt.exe", "<202E>txt.exe"),
        ("\x9b31m", "<9B>31m"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("naïve 数字 👩\u200d🔧", "naïve 数字 👩\u200d🔧"),
    ],
)
def test_nothing_from_outside_moves_the_cursor(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_no_event_carries_an_escape_to_the_terminal() -> None:
    evil = "\x1b[8mhidden"
    card = question(diff=f"+{evil}", name=evil, arguments={"path": evil}, risk=evil, reason=evil)
    said = shown(
        card,
        message(evil),
        UserMessageAdded(message_id="m", text=evil, by=evil),
        requested(path=evil),
        finished(content=evil),
    )
    assert "\x1b" not in said
    assert "+<1B>[8mhidden" in said


def test_long_and_many_lined_arguments_are_shown_as_their_size() -> None:
    assert describe("w", {"content": "a\nb", "path": "x"}, 80) == "w x content=(3 characters)"
    assert len(describe("w", {"path": "x" * 500}, 80)) == 80


# ── questions ─────────────────────────────────────────────────────────────────────────────────


def asked(typed: str, about: ApprovalRequired, *, wanted: bool = True) -> tuple[Reply | None, str]:
    """The reply to what is typed, and what was on the screen."""
    read, write = os.pipe()
    os.write(write, typed.encode())
    if wanted:
        os.close(write)
    out = StringIO()
    with os.fdopen(read) as stdin:
        reply = Asker(Screen(out), Keyboard(stdin)).ask(about, lambda: wanted)
    if not wanted:
        os.close(write)
    return reply, out.getvalue()


@pytest.mark.parametrize(
    ("typed", "reply"),
    [
        ("y\n", Reply(decision="approve")),
        ("perhaps\n Approve \n", Reply(decision="approve")),
        ("n\nNot today\n", Reply(decision="reject", comment="Not today")),
        ("no\n\n", Reply(decision="reject")),
        ("l\n", None),
        ("", None),
        ("y", None),
        ("n\n", None),
    ],
)
def test_only_a_whole_answer_counts(typed: str, reply: Reply | None) -> None:
    assert asked(typed, question())[0] == reply


@pytest.mark.parametrize(
    ("typed", "scope"), [("t\n", "task"), ("s\n", "session"), ("w\n", "always"), ("y\n", "once")]
)
def test_a_yes_may_count_for_more_where_the_card_says_for_what(typed: str, scope: str) -> None:
    card = question(standing="write_file on a.txt")
    reply, screen = asked(typed, card)
    assert reply == Reply(decision="approve", scope=scope)
    assert "write_file on a.txt" in screen
    assert asked("t\n", question())[0] is None


@pytest.mark.parametrize(
    ("typed", "reply"),
    [
        ("y\nd\n", Reply(decision="approve", answer="done")),
        ("t\n", Reply(decision="approve", answer="retry")),
        ("n\nnever mind\n", Reply(decision="reject", comment="never mind")),
    ],
)
def test_an_unknown_effect_is_no_yes_or_no(typed: str, reply: Reply) -> None:
    assert asked(typed, question(kind="unknown_effect"))[0] == reply


@pytest.mark.parametrize(
    ("typed", "reply"),
    [
        ("2\n", Reply(decision="approve", answer="the second")),
        ("9\n", Reply(decision="approve", answer="9")),
        ("\nNeither: take 2024\n", Reply(decision="approve", answer="Neither: take 2024")),
        ("n\nyour choice\n", Reply(decision="reject", comment="your choice")),
        ("l\n", None),
    ],
)
def test_a_question_is_answered_by_number_or_in_words(typed: str, reply: Reply | None) -> None:
    about = question(
        kind="question",
        arguments={"question": "Which \x1b[2Jone?", "options": ["the first", "the second"]},
    )
    assert asked(typed, about)[0] == reply
    screen = shown(about)
    assert "Which <1B>[2Jone?" in screen
    assert "2 the second" in screen


def test_a_question_that_was_answered_elsewhere_is_given_up() -> None:
    assert asked("", question(), wanted=False)[0] is None


def test_the_whole_diff_is_there_on_demand() -> None:
    diff = "".join(f"+line {number}\n" for number in range(500))
    assert "+line 499" not in shown(question(diff=diff))
    reply, screen = asked("d\ny\n", question(diff=diff))
    assert "+line 499" in screen
    assert reply == Reply(decision="approve")


# ── the feed ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def task(transactional_db: None) -> Task:
    return make_task()


def store(task: Task, *what: Any) -> int:
    return writer.run_sync(lambda: events.append(task.pk, list(what))).last_sequence


def news(feed: Feed) -> list[str]:
    """Everything up to the end of the feed, by type."""
    return [item.type for item in feed if item is not None]


def test_what_a_run_shows_comes_between_the_events_that_it_lies_between(task: Task) -> None:
    feed = Feed(task.pk)
    first = store(task, ModelCallStarted(step=1, model="m", attempt=1))
    feed.observe(first, None)
    feed.observe(first, delta("Hel"))
    feed.observe(first, delta("lo", 3))
    last = store(task, message("Hello"))
    feed.observe(last, None)
    store(task, TaskCompleted())
    assert news(feed) == [
        "model_call_started",
        "assistant_delta",
        "assistant_delta",
        "assistant_message",
        "task_completed",
    ]


def test_what_others_store_comes_without_a_word_from_the_run(task: Task) -> None:
    feed = Feed(task.pk)
    reading = iter(feed)
    assert next(reading) is None
    store(task, UserMessageAdded(message_id="m", text="hi", by="bob"))
    item = next(item for item in reading if item is not None)
    assert isinstance(item, Row)
    assert item.type == "user_message"


def test_a_live_event_waits_for_the_stored_one_before_it(task: Task) -> None:
    feed = Feed(task.pk)
    feed.observe(1, delta("early"))
    feed.observe(2, None)
    look = [item.type for item in feed._news()]
    assert look == []  # neither is in the log yet
    store(task, ModelCallStarted(step=1, model="m", attempt=1))
    store(task, TaskCompleted())
    assert news(feed) == ["model_call_started", "assistant_delta", "task_completed"]


def test_a_closed_feed_ends() -> None:
    feed = Feed(UUID(int=0))
    feed.close()
    assert news(feed) == []
