"""ask_user: the model's own question stops the run like an approval, and its answer is a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.events import AgentCompleted, ApprovalRequired, ToolCallFinished, ToolCallStarted
from agent.messages import ToolMessage
from agent.policy import Mode
from agent.providers.scripted import ScriptedCall, Turn
from tests.support.engine import Bench

DONE = Turn(text="Done.")
ASK = ScriptedCall(
    name="ask_user", arguments={"question": "Which year?", "options": ["2025", "2026"]}
)


def asking(folder: Path, times: int = 1, mode: Mode = "ask") -> Bench:
    return Bench(folder, [*[Turn(calls=(ASK,))] * times, DONE], mode=mode)


async def test_a_question_stops_and_its_answer_is_the_result(tmp_path: Path) -> None:
    bench = asking(tmp_path)
    produced = await bench.run()
    question = produced[-1]
    assert isinstance(question, ApprovalRequired)
    assert (question.kind, question.name, question.risk) == ("question", "ask_user", "low")
    assert question.arguments["options"] == ["2025", "2026"]
    assert not bench.of(ToolCallStarted)

    bench.answer("approved", answer="2026, please")
    await bench.run()
    result = bench.of(ToolCallFinished)[-1]
    assert (result.ok, result.details) == (True, {"answer": "2026, please"})
    seen = bench.provider.requests[-1].messages[-1]
    assert isinstance(seen, ToolMessage)
    assert seen.content == "The person answered: 2026, please"
    assert bench.log[-1] == AgentCompleted(final_answer="Done.")


@pytest.mark.parametrize(
    ("status", "words"),
    [("rejected", "The person lets you decide."), ("expired", "Nobody answered in time.")],
)
async def test_without_an_answer_it_goes_on(tmp_path: Path, status: str, words: str) -> None:
    bench = asking(tmp_path)
    await bench.run()
    bench.answer(status)
    await bench.run()
    result = bench.of(ToolCallFinished)[-1]
    assert not result.ok
    assert words in result.content
    assert "say what you assumed" in result.content
    assert isinstance(bench.log[-1], AgentCompleted)


async def test_nobody_is_asked_in_mode_deny(tmp_path: Path) -> None:
    bench = asking(tmp_path, mode="deny")
    await bench.run()
    assert not bench.of(ApprovalRequired)
    assert "In this run nobody is asked." in bench.of(ToolCallFinished)[-1].content
    assert isinstance(bench.log[-1], AgentCompleted)


async def test_a_run_that_only_reads_may_ask(tmp_path: Path) -> None:
    bench = asking(tmp_path, mode="read_only")
    assert isinstance((await bench.run())[-1], ApprovalRequired)


async def test_who_let_it_decide_twice_is_not_asked_the_same_again(tmp_path: Path) -> None:
    bench = asking(tmp_path, times=3)
    for _ in range(2):
        await bench.run()
        bench.answer("rejected")
    await bench.run()
    assert len(bench.of(ApprovalRequired)) == 2
    assert isinstance(bench.log[-1], AgentCompleted)


async def test_an_answer_outlives_a_crash(tmp_path: Path) -> None:
    bench = asking(tmp_path)
    await bench.run()
    bench.answer("approved", answer="2025")
    await bench.run(stop_at=ToolCallStarted)
    await bench.run()
    assert len(bench.of(ApprovalRequired)) == 1
    assert bench.of(ToolCallFinished)[-1].details == {"answer": "2025"}
    assert isinstance(bench.log[-1], AgentCompleted)


async def test_a_question_stands_beside_reads(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("AAA")
    read = ScriptedCall(name="read_file", arguments={"path": "a.txt"})
    bench = Bench(tmp_path, [Turn(calls=(ASK, read)), DONE])
    produced = await bench.run()
    assert isinstance(produced[-1], ApprovalRequired)
    assert "AAA" in bench.of(ToolCallFinished)[-1].content
