"""Whole runs in this process: rows, a real runner, a scripted model. No server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from agent.messages import AssistantMessage, UserMessage
from agent.providers import Model
from agent.providers.history import check_history
from agent.providers.scripted import ScriptedProvider, Turn, TurnFor
from tasks import decisions, events, service, sessions, wiring
from tasks.approvals import Reply
from tasks.commands import Created, TaskRequest
from tasks.events import Row
from tasks.hub import hub
from tasks.models import Approval, Task, Workspace
from tasks.runner import Runner
from tests.support.rows import make_user, make_workspace


class ScriptedModels(wiring.Models):
    """Every run of this process plays the same script."""

    def __init__(self, turns: Sequence[Turn | TurnFor]) -> None:
        super().__init__()
        self.script = ScriptedProvider(turns)

    def choose(self, task: Task) -> wiring.Choice:
        return wiring.Choice(models=(Model(provider=self.script),))


@dataclass
class House:
    """Alice, her workspace on disk, and helpers that read like sentences."""

    alice: User
    workspace: Workspace
    folder: Path
    runners: list[Runner] = field(default_factory=list)

    async def ask(self, goal: str = "Compare the quotes", **more: Any) -> Created:
        """Post a goal, with nobody there yet to run it."""
        request = TaskRequest(
            goal=goal, owner_id=self.alice.pk, trigger=more.pop("trigger", "api"), **more
        )
        return await service.create(request)

    @asynccontextmanager
    async def runner(
        self,
        *turns: Turn | TurnFor,
        worker: str = "test:1",
        models: wiring.Models | None = None,
    ) -> AsyncIterator[Runner]:
        """A runner on this loop, as a server has one; drained at the end. It plays the script, or
        asks real `models`."""
        hub.attach(asyncio.get_running_loop())
        runner = Runner(worker, models or ScriptedModels(turns))
        await runner.start()
        try:
            yield runner
        finally:
            await runner.drain(1)
            hub.detach()

    async def lose(self, runner: Runner, task_id: UUID) -> None:
        """The process dies: its run writes nothing more, and its lease has run out."""
        async with asyncio.timeout(10):
            while True:  # the row says that it runs a moment before the runner knows
                if task_id in runner._runs:
                    break
                await asyncio.sleep(0.001)
        runner.forget(task_id)
        await Task.objects.filter(pk=task_id).aupdate(lease_expires_at=None)

    async def rest(self, runner: Runner) -> None:
        """Whatever it began has come to its end."""
        async with asyncio.timeout(10):
            await asyncio.gather(*runner._tasks.values())

    async def until(
        self, task_id: UUID, wanted: str | Callable[[Task], bool], seconds: float = 10
    ) -> Task:
        """The task, as soon as it has that status or satisfies that condition."""
        done = wanted if callable(wanted) else (lambda task: task.status == wanted)
        async with asyncio.timeout(seconds):
            while True:
                task = await Task.objects.select_related("session").aget(pk=task_id)
                if done(task):
                    return task
                await asyncio.sleep(0.01)

    async def pending(self, task_id: UUID) -> Approval:
        return await Approval.objects.aget(task_id=task_id, status="pending")

    async def reply(self, approval_id: UUID, decision: str = "approve", **more: Any) -> Approval:
        reply = Reply(decision=decision, **more)
        return await decisions.resolve(approval_id, self.alice.pk, reply)

    async def log(self, task_id: UUID) -> list[Row]:
        return await sync_to_async(events.page)(task_id, 0, 10_000)

    async def types(self, task_id: UUID) -> list[str]:
        return [row.type for row in await self.log(task_id)]

    async def requested(self, task_id: UUID) -> list[dict[str, Any]]:
        """What the task's calls are, and what policy says of each."""
        rows = await self.log(task_id)
        return [json.loads(row.payload) for row in rows if row.type == "tool_call_requested"]

    async def check(self, task_id: UUID) -> None:
        """What holds for every task at every moment: numbers without gaps, a history that a
        strict provider accepts, and a row that says what its log says."""
        rows = await self.log(task_id)
        task = await Task.objects.select_related("session").aget(pk=task_id)
        assert [row.sequence for row in rows] == list(range(1, task.last_sequence + 1))
        transcript = await sync_to_async(sessions.transcript_of)(task)
        messages = transcript.messages()
        if isinstance(messages[-1], AssistantMessage):
            messages.append(UserMessage(text="and now?"))
        check_history(messages)
        if task.status in Task.TERMINAL:
            assert rows[-1].type == _TERMINAL_TYPE[task.status]
            assert not transcript.open_calls
            assert task.final_answer == (transcript.final_answer or "")
            assert task.steps == transcript.spent.steps


_TERMINAL_TYPE = {
    "completed": "task_completed",
    "failed": "task_failed",
    "cancelled": "task_cancelled",
    "budget_exceeded": "budget_exceeded",
}


def make_house(folder: Path) -> House:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.txt").write_text("AAA")
    (folder / "b.txt").write_text("BBB")
    alice = make_user("alice")
    return House(
        alice=alice, workspace=make_workspace(alice, name="desk", root=folder), folder=folder
    )
