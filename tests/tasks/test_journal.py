"""What a run stores: together where that loses nothing, in order, and never behind anybody's back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from agent.events import (
    AgentCompleted,
    AssistantMessageAdded,
    ErrorInfo,
    ModelCallFinished,
    ModelCallStarted,
    StoredEvent,
    TaskCompleted,
    TaskCreated,
    TaskFailed,
    ToolCallFinished,
    ToolCallRequested,
    ToolCallStarted,
    UserMessageAdded,
)
from agent.messages import Usage
from tasks import events, sessions
from tasks.chain import verify_task
from tasks.endings import Behind, MadeFile, RunEnd
from tasks.events import FenceLost, Head, Row
from tasks.journal import Journal
from tasks.models import ModelUsage, Task
from tasks.writer import writer
from tests.support.counting import written
from tests.support.rows import make_task

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = ModelCallStarted(step=1, model="m", attempt=1)
WANTS = ToolCallRequested(
    step=1,
    tool_call_id="c1",
    block_id="b1",
    index=0,
    name="read_file",
    arguments={"path": "a"},
    capability="file:read",
    risk="low",
    decision="allow",
    rule="default",
)
REPLIED = ModelCallFinished(
    step=1, finish_reason="stop", usage=Usage(input_tokens=7), cost=None, duration_ms=1
)
READS = ToolCallStarted(step=1, tool_call_id="c1")
HAS_READ = ToolCallFinished(step=1, tool_call_id="c1", ok=True, content="A")
ASKED_AGAIN = ModelCallStarted(step=2, model="m", attempt=1)
SAYS = AssistantMessageAdded(step=2, block_id="b2", text="Done.")
SAID = ModelCallFinished(
    step=2, finish_reason="stop", usage=Usage(input_tokens=5), cost=None, duration_ms=1
)
DONE = AgentCompleted(final_answer="Done.")
WORD = UserMessageAdded(message_id="m1", text="And the other?", by="alice")


@pytest.fixture
async def task() -> AsyncIterator[Task]:
    row = await sync_to_async(make_task)(status=Task.Status.RUNNING, run=1)
    born = TaskCreated(goal=row.goal, session_id=str(row.session_id), trigger="api")
    await writer.run(partial(events.append, row.pk, [born]))
    yield await Task.objects.select_related("session").aget(pk=row.pk)
    writer.stop()


def _nothing() -> None:
    pass


async def open_journal(task: Task, wait_seconds: float) -> Journal:
    head = Head(sequence=1, hash=task.last_hash, time=task.last_event_at)
    made = Journal(task, 1, head, "m", _nothing, wait_seconds=wait_seconds)
    made.transcript = await sync_to_async(sessions.transcript_of)(task)
    return made


@pytest.fixture
async def journal(task: Task) -> AsyncIterator[Journal]:
    """Its time never comes by itself."""
    patient = await open_journal(task, 3600)
    yield patient
    await patient.close()


@pytest.fixture
async def hasty(task: Task) -> AsyncIterator[Journal]:
    """Its time has come before anything else happens."""
    made = await open_journal(task, 0)
    yield made
    await made.close()


async def take(journal: Journal, *batch: StoredEvent, waits: bool = False) -> None:
    """As a run does it: stored or deferred, then folded."""
    if waits:
        journal.defer(batch)
    else:
        await journal.store(batch)
    for event in batch:
        journal.transcript.apply(event)


async def log(task: Task) -> list[Row]:
    return await sync_to_async(events.page)(task.pk)


async def types(task: Task) -> list[str]:
    return [row.type for row in await log(task)]


async def stored(task: Task, count: int) -> None:
    async with asyncio.timeout(10):
        while True:
            if len(await log(task)) == count:
                return
            await asyncio.sleep(0.005)


async def say(task: Task) -> None:
    await writer.run(partial(events.append, task.pk, [WORD]))


async def agrees(journal: Journal, task: Task) -> None:
    """The history in memory is the one that the next process would read."""
    fresh = await Task.objects.select_related("session").aget(pk=task.pk)
    read = await sync_to_async(sessions.transcript_of)(fresh)
    assert journal.transcript.messages() == read.messages()
    assert journal.known == fresh.last_sequence


async def step(journal: Journal) -> None:
    await take(journal, ASKED)
    await take(journal, WANTS, REPLIED, waits=True)
    await take(journal, READS, waits=True)
    await take(journal, HAS_READ, waits=True)


async def test_a_step_that_only_reads_is_one_command(journal: Journal, task: Task) -> None:
    await step(journal)
    assert await types(task) == ["task_created", "model_call_started"]
    await take(journal, ASKED_AGAIN)
    rows = await log(task)
    assert [row.type for row in rows[2:]] == [
        *("tool_call_requested", "model_call_finished", "tool_call_started"),
        *("tool_call_finished", "model_call_started"),
    ]
    assert len({row.created_at for row in rows[2:]}) == 1
    await agrees(journal, task)
    row = await Task.objects.aget(pk=task.pk)
    assert (row.steps, row.usage["input_tokens"]) == (1, 7)
    used = await ModelUsage.objects.aget(task=task)
    assert (used.calls, used.input_tokens) == (1, 7)


async def test_what_waits_is_stored_although_nothing_follows(hasty: Journal, task: Task) -> None:
    await step(hasty)
    await stored(task, 6)
    await take(hasty, ASKED_AGAIN)
    await agrees(hasty, task)
    assert [row.sequence for row in await log(task)] == list(range(1, 8))


async def test_words_that_come_while_something_waits_are_answered(
    journal: Journal, task: Task
) -> None:
    await step(journal)
    await say(task)
    await take(journal, ASKED_AGAIN)
    assert (await types(task))[2] == "user_message"
    await agrees(journal, task)
    assert journal.transcript.messages()[-1].text == WORD.text  # type: ignore[union-attr]


async def test_an_end_stores_what_waits(journal: Journal, task: Task) -> None:
    await take(journal, ASKED_AGAIN)
    await take(journal, SAYS, SAID, waits=True)
    await journal.end(_ending(journal))
    assert (await types(task))[2:] == [
        *("assistant_message", "model_call_finished", "agent_completed", "task_completed"),
    ]
    used = await ModelUsage.objects.aget(task=task)
    assert (used.calls, used.input_tokens) == (1, 5)


async def test_an_end_that_comes_too_late_leaves_everything_to_the_next_look(
    journal: Journal, task: Task
) -> None:
    await take(journal, ASKED_AGAIN)
    await take(journal, SAYS, SAID, waits=True)
    await say(task)
    with pytest.raises(Behind):
        await journal.end(_ending(journal))
    assert await types(task) == ["task_created", "model_call_started", "user_message"]
    await journal.read_on()
    assert (await types(task))[3:] == ["assistant_message", "model_call_finished"]
    assert journal.transcript.unanswered
    await agrees(journal, task)
    assert (await ModelUsage.objects.aget(task=task)).calls == 1


async def test_a_run_that_lost_its_task_hears_it_at_the_next_event(
    hasty: Journal, task: Task
) -> None:
    await take(hasty, ASKED)
    await Task.objects.filter(pk=task.pk).aupdate(run=2)
    await take(hasty, WANTS, REPLIED, waits=True)
    await asyncio.sleep(0)
    await hasty.close()  # its flush has failed, and nobody has heard it
    with pytest.raises(FenceLost):
        await hasty.store([READS])
    assert len(await log(task)) == 2


def _ending(journal: Journal) -> RunEnd:
    return RunEnd(
        task=journal._task,
        run=1,
        head=journal.head,
        terminal=TaskCompleted(),
        before=[DONE],
        spent=journal.transcript.spent,
        seen=journal.known,
    )


async def journals(count: int) -> list[Journal]:
    opened = []
    for _ in range(count):
        row = await sync_to_async(make_task)(status=Task.Status.RUNNING, run=1)
        born = TaskCreated(goal=row.goal, session_id=str(row.session_id), trigger="api")
        await writer.run(partial(events.append, row.pk, [born]))
        opened.append(
            await open_journal(await Task.objects.select_related("session").aget(pk=row.pk), 3600)
        )
    return opened


async def in_one_batch(*storing: Coroutine[Any, Any, None]) -> list[object]:
    """All of it reaches the writer while that is held up."""
    held = asyncio.create_task(writer.run(partial(time.sleep, 0.05)))
    await asyncio.sleep(0)
    tasks = [asyncio.create_task(each) for each in storing]
    await held
    return await asyncio.gather(*tasks, return_exceptions=True)


async def store_in_one_batch(journals: Sequence[Journal], *batch: StoredEvent) -> list[object]:
    return await in_one_batch(*(journal.store(batch) for journal in journals))


async def end_in_one_batch(journals: Sequence[Journal]) -> list[object]:
    return await in_one_batch(*(journal.end(_ending(journal)) for journal in journals))


async def test_runs_that_store_at_the_same_time_need_the_statements_of_one() -> None:
    opened = await journals(8)
    for journal in opened:
        await step(journal)
    async with written() as statements:
        assert await store_in_one_batch(opened, ASKED_AGAIN) == [None] * 8
    assert [text.split()[0] for text in statements] == ["UPDATE", "UPDATE", "INSERT", "INSERT"]
    assert "RETURNING" not in "".join(statements)  # a row is a step, in which others get their turn
    for journal in opened:
        task = journal._task
        assert (await types(task))[2:] == [
            *("tool_call_requested", "model_call_finished", "tool_call_started"),
            *("tool_call_finished", "model_call_started"),
        ]
        assert (await sync_to_async(verify_task)(task.pk)).problem == ""
        await agrees(journal, task)
        used = await ModelUsage.objects.aget(task=task)
        row = await Task.objects.aget(pk=task.pk)
        assert (used.calls, used.input_tokens, row.steps) == (1, 7, 1)


async def test_what_others_did_to_one_task_keeps_no_other_run_from_storing() -> None:
    alone, steered, lost = opened = await journals(3)
    await say(steered._task)
    await Task.objects.filter(pk=lost._task.pk).aupdate(run=2)
    outcomes = await store_in_one_batch(opened, ASKED)
    assert outcomes[:2] == [None, None]
    assert isinstance(outcomes[2], FenceLost)
    assert await types(alone._task) == ["task_created", "model_call_started"]
    assert await types(steered._task) == ["task_created", "user_message", "model_call_started"]
    assert await types(lost._task) == ["task_created"]
    for journal in (alone, steered):
        journal.transcript.apply(ASKED)
        await agrees(journal, journal._task)
        assert (await sync_to_async(verify_task)(journal._task.pk)).problem == ""


async def test_what_came_into_one_session_keeps_no_other_run_from_storing() -> None:
    opened = await journals(2)
    joined = opened[1]
    for journal in opened:
        await step(journal)
    other = await sync_to_async(make_task)(session=joined._task.session)
    born = TaskCreated(goal=other.goal, session_id=str(other.session_id), trigger="api")
    await writer.run(partial(events.append, other.pk, [born]))
    # Here it learns where the session's numbers are by now.
    assert await store_in_one_batch(opened, ASKED_AGAIN) == [None] * 2
    async with written() as statements:
        assert await store_in_one_batch(opened, ASKED_AGAIN) == [None] * 2
    assert len(statements) == 3  # nothing was used
    positions = [row.position for row in await log(joined._task)]
    assert positions == [1, 2, *range(4, 10)]
    for journal in opened:
        assert (await sync_to_async(verify_task)(journal._task.pk)).problem == ""


async def answered(count: int) -> list[Journal]:
    """Runs that were asked and have their answers, which wait for the end."""
    opened = await journals(count)
    for journal in opened:
        await take(journal, ASKED_AGAIN)
        await take(journal, SAYS, SAID, waits=True)
    return opened


async def has_ended(task: Task) -> bool:
    """Whole: the row, the log and what was used."""
    row = await Task.objects.aget(pk=task.pk)
    assert (await sync_to_async(verify_task)(task.pk)).problem == ""
    used = await ModelUsage.objects.aget(task=task)
    return (row.status, row.final_answer, row.steps, row.lease_worker, used.calls) == (
        *("completed", "Done.", SAID.step, "", 1),
    )


async def test_runs_that_end_at_the_same_time_need_the_statements_of_one() -> None:
    opened = await answered(8)
    async with written() as statements:
        assert await end_in_one_batch(opened) == [None] * 8
    assert [text.split()[0] for text in statements] == ["UPDATE", "UPDATE", "INSERT", "INSERT"]
    assert "RETURNING" not in "".join(statements)
    for journal in opened:
        assert (await types(journal._task))[1:] == [
            *("model_call_started", "assistant_message", "model_call_finished"),
            *("agent_completed", "task_completed"),
        ]
        assert await has_ended(journal._task)


async def test_what_others_did_to_one_task_keeps_no_other_run_from_ending() -> None:
    alone, steered, lost, joined = opened = await answered(4)
    await say(steered._task)
    await Task.objects.filter(pk=lost._task.pk).aupdate(run=2)
    other = await sync_to_async(make_task)(session=joined._task.session)
    born = TaskCreated(goal=other.goal, session_id=str(other.session_id), trigger="api")
    await writer.run(partial(events.append, other.pk, [born]))
    outcomes = await end_in_one_batch(opened)
    assert [type(each) for each in outcomes] == [type(None), Behind, FenceLost, type(None)]
    assert await has_ended(alone._task)
    assert await has_ended(joined._task)
    assert (await types(steered._task))[1:] == ["model_call_started", "user_message"]
    assert (await types(lost._task))[1:] == ["model_call_started"]


async def test_a_run_that_fails_beside_an_answer_fails() -> None:
    answer, failed = await answered(2)
    error = TaskFailed(error=ErrorInfo(code="c", message="m", hint="h"))
    failure = replace(_ending(failed), terminal=error, before=[])
    assert await in_one_batch(answer.end(_ending(answer)), failed.end(failure)) == [None] * 2
    assert await has_ended(answer._task)
    assert (await Task.objects.aget(pk=failed._task.pk)).status == "failed"
    assert (await types(failed._task))[-2:] == ["model_call_finished", "task_failed"]


async def test_files_of_an_answer_beside_others_are_recorded() -> None:
    answer, maker = await answered(2)
    made = [MadeFile(path="a.txt", size=1, sha256="0" * 64)]
    whole = replace(_ending(maker), made=made)
    assert await in_one_batch(answer.end(_ending(answer)), maker.end(whole)) == [None] * 2
    assert await has_ended(answer._task)
    assert await has_ended(maker._task)
    assert "artifact_recorded" in await types(maker._task)


async def test_an_end_alone_need_not_know_what_else_its_session_has_stored() -> None:
    (journal,) = await answered(1)
    other = await sync_to_async(make_task)(session=journal._task.session)
    born = TaskCreated(goal=other.goal, session_id=str(other.session_id), trigger="api")
    await writer.run(partial(events.append, other.pk, [born]))
    async with written() as statements:
        await end_in_one_batch([journal])
    assert [text.split()[0] for text in statements] == ["UPDATE", "UPDATE", "INSERT", "INSERT"]
    assert await has_ended(journal._task)
