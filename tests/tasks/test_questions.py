"""Questions of the agent: answered by the API, the chat API, the prompt and the admin."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.providers.scripted import ScriptedCall, Turn
from tasks.errors import Conflict, Invalid
from tasks.models import Approval
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

ASK = Turn(
    calls=(
        ScriptedCall(name="ask_user", arguments={"question": "Which year?", "options": ["2025"]}),
    )
)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "desk")


async def test_the_answer_reaches_the_model_and_the_log(house: House) -> None:
    async with house.runner(ASK, Turn(text="2025 it is.")):
        task = (await house.ask()).task_id
        await house.until(task, "waiting_approval")
        question = await house.pending(task)
        assert (question.kind, question.tool) == ("question", "ask_user")
        await house.reply(question.id, answer="2025")
        done = await house.until(task, "completed")
    assert done.final_answer == "2025 it is."
    stored = await Approval.objects.aget(pk=question.id)
    assert (stored.status, stored.answer) == ("approved", "2025")
    finished = next(row for row in await house.log(task) if row.type == "tool_call_finished")
    assert "The person answered: 2025" in finished.payload
    await house.check(task)


async def test_an_answer_is_needed_counts_once_and_edits_nothing(house: House) -> None:
    async with house.runner(ASK, Turn(text="Done.")):
        task = (await house.ask()).task_id
        await house.until(task, "waiting_approval")
        question = await house.pending(task)
        with pytest.raises(Invalid, match="Answer the question"):
            await house.reply(question.id, answer=" ")
        with pytest.raises(Invalid, match="cannot be edited"):
            await house.reply(question.id, answer="x", edited_arguments={"question": "?"})
        with pytest.raises(Invalid, match="takes no answer"):
            await house.reply(question.id, decision="reject", answer="x")
        await house.reply(question.id, answer="2024")
        await house.reply(question.id, answer="2024")
        with pytest.raises(Conflict):
            await house.reply(question.id, answer="2023")
        await house.until(task, "completed")


async def test_a_schedule_in_mode_deny_goes_on_without_an_answer(house: House) -> None:
    async with house.runner(ASK, Turn(text="I assumed 2025.")):
        task = (await house.ask(trigger="cron", mode="deny")).task_id
        done = await house.until(task, "completed")
    assert done.final_answer == "I assumed 2025."
    assert not await Approval.objects.filter(task_id=task).aexists()
