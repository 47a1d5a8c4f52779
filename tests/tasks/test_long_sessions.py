"""Long conversations: summaries in the log, histories read from the newest one on."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agent.context import size
from agent.entries import SUMMARIZED
from agent.events import Delta
from agent.messages import Message, Reply, UserMessage
from agent.providers import Model, ModelRequest
from agent.providers.scripted import ScriptedCall, Turn
from agent.transcript import Transcript
from tasks import events, service, sessions, wiring
from tasks.commands import Created
from tasks.models import ModelUsage, Task
from tasks.runner import Runner
from tests.support.engine import SummarizingProvider
from tests.support.runs import House, make_house

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = 6000
DONE = Turn(text="Done.")


def read(path: str) -> Turn:
    return Turn(calls=(ScriptedCall(name="read_file", arguments={"path": path}),))


class SmallModels(wiring.Models):
    """Reads little, and answers every request after having read a file."""

    def __init__(self, *turns: Turn, context_tokens: int = SMALL) -> None:
        super().__init__()
        self.script: SummarizingProvider = Endless() if not turns else SummarizingProvider(turns)
        self.model = Model(provider=self.script, context_tokens=context_tokens)

    def choose(self, task: Task) -> wiring.Choice:
        return wiring.Choice(models=(self.model,))


class Endless(SummarizingProvider):
    """Reads big.txt once per request, then answers."""

    def __init__(self) -> None:
        super().__init__([])

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        if request.tools:
            asked = isinstance(request.messages[-1], UserMessage)
            self._turns.append(read("big.txt") if asked else DONE)
        async with aclosing(super().stream(request)) as stream:
            async for item in stream:
                yield item


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = make_house(tmp_path / "desk")
    for number in range(30):
        (house.folder / f"{number}.txt").write_text(f"file {number} " + "x" * 3000)
    (house.folder / "big.txt").write_text("y" * 10_000)
    return house


def whole(task: Task) -> list[Message]:
    """Folded from every event of the session, in the order of its tasks."""
    transcript = Transcript()
    for row in Task.objects.filter(session=task.session).order_by("first_position"):
        for stored in events.page(row.pk, 0, 10_000):
            transcript.apply(events.typed(stored))
        if row.pk == task.pk:
            break
    return transcript.messages()


async def histories(task_id: UUID) -> tuple[list[Message], list[Message]]:
    """Read from the newest summary on, and read whole."""
    task = await Task.objects.select_related("session").aget(pk=task_id)
    late = await sync_to_async(sessions.transcript_of)(task)
    return late.messages(), await sync_to_async(whole)(task)


async def talk(house: House, runner: Runner, turns: int) -> list[Created]:
    """So many requests in one session, each answered before the next."""
    asked: list[Created] = []
    for number in range(turns):
        before = asked[-1] if asked else None
        asked.append(await turn(house, runner, before, f"Question {number}"))
    return asked


async def turn(house: House, runner: Runner, before: Created | None, goal: str) -> Created:
    session_id = None if before is None else before.session_id
    created = await house.ask(goal, session_id=session_id)
    runner.wake(str(created.task_id))
    await house.until(created.task_id, "completed", 20)
    return created


async def test_a_long_run_summarizes_and_its_log_says_of_what(house: House) -> None:
    models = SmallModels(*[read(f"{n}.txt") for n in range(11)], DONE)
    async with house.runner(models=models):
        created = await house.ask()
        task = await house.until(created.task_id, "completed")
    rows = await house.log(task.pk)
    [event, *_] = [json.loads(row.payload) for row in rows if row.type == "context_compacted"]
    assert (event["from_task_id"], event["to_task_id"]) == (str(task.pk), str(task.pk))
    assert event["from_sequence"] == 1
    assert rows[event["to_sequence"]].type == "model_call_started"
    assert task.compacted_at == [r.sequence for r in rows if r.type == "context_compacted"][-1]
    late, full = await histories(task.pk)
    assert late == full
    await house.check(task.pk)
    used = await ModelUsage.objects.aget()
    assert used.calls == 12 + len(models.script.summarized)
    assert task.usage["input_tokens"] == used.input_tokens


async def test_a_follow_up_reads_from_the_newest_summary_on(house: House) -> None:
    async with house.runner(models=SmallModels()) as runner:
        asked = await talk(house, runner, 10)
    for created in asked:
        late, full = await histories(created.task_id)
        assert late == full
        await house.check(created.task_id)
    newest = await Task.objects.aget(pk=asked[-1].task_id)
    history = await sync_to_async(sessions.history_of)(newest)
    assert history.summary is not None
    assert len(history.links) < 8


async def test_a_fork_before_and_behind_a_summary_is_a_whole_history(house: House) -> None:
    async with house.runner(models=SmallModels()) as runner:
        await talk(house, runner, 8)
        compacted = await Task.objects.filter(compacted_at__isnull=False).alast()
        assert compacted is not None
        place = compacted.compacted_at
        assert place is not None
        for sequence in (1, place - 1, place, compacted.last_sequence):
            branch = await service.fork(
                compacted.session_id, house.alice.pk, compacted.pk, sequence
            )
            created = await house.ask("And in this branch?", session_id=branch)
            runner.wake(str(created.task_id))
            await house.until(created.task_id, "completed", 20)
            await house.check(created.task_id)


async def test_a_run_that_dies_after_a_summary_goes_on_with_it(house: House) -> None:
    turns = [read(f"{n}.txt") for n in range(8)]
    hanging = Turn(text="Let me", hang=True)
    async with house.runner(models=SmallModels(*turns, hanging)):
        created = await house.ask()
        await house.until(
            created.task_id, lambda task: task.compacted_at is not None and task.steps > 7
        )
    before, full = await histories(created.task_id)
    assert before == full
    async with house.runner(models=SmallModels(DONE), worker="test:2"):
        task = await house.until(created.task_id, "completed")
    await house.check(task.pk)
    late, full = await histories(task.pk)
    assert late == full
    assert isinstance(late[0], UserMessage)
    assert late[0].text.startswith(SUMMARIZED)


async def queries_of(task_id: UUID) -> int:
    task = await Task.objects.select_related("session").aget(pk=task_id)

    def count() -> int:
        with CaptureQueriesContext(connection) as caught:
            sessions.transcript_of(task)
        return len(caught)

    return await sync_to_async(count)()


@pytest.mark.parametrize(
    "turns", [24, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
async def test_two_hundred_turns_and_two_megabytes_keep_working(house: House, turns: int) -> None:
    """Each turn reads 10 kB: the requests stay bounded and a follow-up costs no more queries late
    than early."""
    models = SmallModels(context_tokens=10_000)
    async with house.runner(models=models) as runner:
        asked = await talk(house, runner, turns)
    costs = [await queries_of(created.task_id) for created in asked]
    assert len(models.script.summarized) >= turns // 20
    assert max(size(request.messages) for request in models.script.requests) < 40_000
    assert max(costs[turns // 2 :]) <= max(costs[: turns // 2]) + 2
    late, full = await histories(asked[-1].task_id)
    assert late == full
