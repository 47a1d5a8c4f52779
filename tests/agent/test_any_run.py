"""Any run, cut anywhere: the log folds to a history that a strict provider accepts.

Random scripts through the real engine and tools: replies with good, bad and broken calls, failing
models, people who approve, edit, reject or stay away, messages said at any moment, processes that
die after any event. The log goes through its stored form, as the database would keep it.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.budget import Limits
from agent.entries import SUMMARIZED
from agent.errors import ProviderIncomplete, ProviderRefused
from agent.events import (
    AgentCompleted,
    ApprovalRequired,
    BudgetExceeded,
    ContextCompacted,
    ModelCallStarted,
    StoredEvent,
    TaskFailed,
    ToolCallFinished,
    ToolCallStarted,
    UserMessageAdded,
    from_payload,
    payload_of,
)
from agent.messages import AssistantMessage, UserMessage
from agent.providers.history import check_history
from agent.providers.scripted import ScriptedCall, Turn
from agent.transcript import Transcript
from tasks.canonical import canonical_json
from tests.support.engine import Bench, fold

PATHS = st.sampled_from(["a.txt", "b.txt", "gone.txt", "../out.txt", "new/c.txt"])
CALLS = st.one_of(
    st.builds(lambda path: ScriptedCall(name="read_file", arguments={"path": path}), PATHS),
    st.builds(
        lambda path, text: ScriptedCall(
            name="write_file", arguments={"path": path, "content": text}
        ),
        PATHS,
        st.text(max_size=8),
    ),
    st.builds(lambda i: ScriptedCall(name="list_files", id=i), st.sampled_from(["", "call_0"])),
    st.just(ScriptedCall(name="write_file", arguments=None, raw='{"path": "a')),
    st.just(ScriptedCall(name="no_such_tool")),
)
TURNS = st.builds(
    Turn,
    text=st.sampled_from(["", "Looking.", "Ünï 🌍"]),
    reasoning=st.sampled_from(["", "Hm."]),
    calls=st.lists(CALLS, max_size=3).map(tuple),
    error=st.sampled_from([None, None, None, ProviderIncomplete("cut"), ProviderRefused("no")]),
)
ANSWERS = st.sampled_from(["approved", "approved", "edited", "rejected", "expired"])
PLANS = st.lists(st.tuples(st.integers(0, 12), ANSWERS, st.booleans()), min_size=1, max_size=6)
"""For each run: the process dies after so many stored events (0: it does not), what people
answer, whether somebody says something before the next run."""
ENDS = (AgentCompleted, TaskFailed, BudgetExceeded)


def stored(log: list[StoredEvent]) -> list[StoredEvent]:
    return [from_payload(event.type, canonical_json(payload_of(event))) for event in log]


def answer_all(bench: Bench, answer: str) -> None:
    waiting = [call for call in Transcript(bench.log).open_calls if call.waits]
    for call in waiting:
        kind = call.ask.kind if call.ask else ""
        edits: dict[str, Any] = {}
        if answer == "edited" and kind == "call":
            edits = {"edited_arguments": {"path": "edited.txt", "content": "E"}}
            edits["target_digest"] = ""
        status = "approved" if answer == "edited" else answer
        reply = "retry" if kind == "unknown_effect" and status == "approved" else None
        bench.answer(status, call.asked.tool_call_id, answer=reply, **edits)


async def play(bench: Bench, plan: list[tuple[int, str, bool]]) -> None:
    for dies_after, answer, speaks in plan:
        if isinstance(bench.log[-1], ENDS):
            return
        await bench.run(die_after=dies_after or None)
        if not dies_after:
            assert Transcript(stored(bench.log)).messages() == bench.transcript.messages()
        answer_all(bench, answer)
        if speaks and not isinstance(bench.log[-1], ENDS):
            bench.log.append(UserMessageAdded(message_id="m", text="Also this", by="alice"))


def check_summaries(log: list[StoredEvent]) -> None:
    """A summary covers the log from the beginning up to where a reply begins, people's words stay,
    and a fold that begins with it agrees with one that read everything."""
    for length, event in enumerate(log):
        if not isinstance(event, ContextCompacted):
            continue
        assert (event.from_sequence, event.from_task_id, event.to_task_id) == (1, "t", "t")
        assert isinstance(log[event.to_sequence], ModelCallStarted)
        before, after = fold(log[:length]), fold(log[: length + 1])
        words = [each.text for each in before.messages() if isinstance(each, UserMessage)]
        kept = [each.text for each in after.messages() if isinstance(each, UserMessage)]
        spoken = [text for text in words if not text.startswith(SUMMARIZED)]
        assert kept[1:] == spoken
        late = fold(log[: event.to_sequence])
        late.settle()
        late.summarize(event, len(late.entries))
        for place, rest in enumerate(log[event.to_sequence :], start=event.to_sequence + 1):
            if place > length + 1 and isinstance(rest, ContextCompacted):
                break
            if not isinstance(rest, ContextCompacted):
                late.apply(rest)
            if place > length:
                assert late.messages() == fold(log[:place]).messages()


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    turns=st.lists(TURNS, min_size=1, max_size=5),
    plan=PLANS,
    context_tokens=st.sampled_from([100_000, 100_000, 1000, 2200]),
)
def test_every_cut_of_any_log_is_a_valid_history(
    turns: list[Turn], plan: list[tuple[int, str, bool]], context_tokens: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "desk"
        folder.mkdir()
        (folder / "a.txt").write_text("AAA")
        endless = [*turns, *([Turn(text="Done.")] * 40)]
        limits = Limits(max_steps=6 if context_tokens > 10_000 else 10)
        bench = Bench(folder, endless, limits=limits, context_tokens=context_tokens)
        asyncio.run(play(bench, plan))
        assert not (Path(name) / "out.txt").exists()
    log = stored(bench.log)
    check_summaries(log)
    for length in range(1, len(log) + 1):
        messages = Transcript(log[:length]).messages()
        if isinstance(messages[-1], AssistantMessage):
            messages.append(UserMessage(text="and now?"))
        check_history(messages)
    finished = [event.tool_call_id for event in bench.of(ToolCallFinished)]
    assert len(finished) == len(set(finished))
    asked = {event.tool_call_id for event in bench.of(ApprovalRequired)}
    writes = {
        event.tool_call_id
        for event in bench.of(ToolCallStarted)
        if Transcript(log).calls[event.tool_call_id].asked.name == "write_file"
    }
    assert writes <= asked
