"""Stages of a task at which its server may be killed, each up to the kill and on from there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from tests.support.e2e import Desk, House, Person
from tests.support.e2e_model import Call, Hold, words
from tests.support.held import Gate
from tests.support.waiting import happened

ANSWER = "".join(f"w{number} " for number in range(20))
LONG_SECONDS = 600
"""For somebody whose server dies again and again."""


@dataclass
class Work:
    """One task on its way: read, write after a yes, a long answer; with places to stop it."""

    house: House
    alice: Person
    name: str
    asking: Hold = field(default_factory=Hold)
    answering: Hold = field(default_factory=Hold)

    def __post_init__(self) -> None:
        self.asking.release()
        self.answering.release()
        self.desk: Desk = self.house.desk()
        self.model = self.house.model
        self.model.script(
            self.name,
            [*words(10), self.asking, *words(20)[10:], Call("read_file", path="a.txt")],
            [Call("write_file", path="out.txt", content="report\n")],
            [*words(10), self.answering, *words(20)[10:]],
        )

    async def begin(self, stack: AsyncExitStack) -> None:
        task = await self.alice.ask(self.desk, f"[{self.name}] Write a report")
        self.id: str = task["id"]
        self.client = await stack.enter_async_context(self.alice.follow(self.id))

    def gate(self, name: str) -> Gate:
        return Gate(self.desk.folder, name)

    def close(self, *names: str) -> None:
        for name in names:
            self.gate(name).close()

    async def at(self, name: str) -> None:
        """Somebody stands at that gate."""
        await happened(self.gate(name).reached.exists)

    async def yes(self, number: int = 1, **more: str) -> None:
        approval = await self.client.approval(number)
        await self.alice.approve(approval, **more)

    async def ends_well(self, runs: int) -> None:
        await self.client.end()
        await self.house.check(self.alice, self.id, self.client)
        assert self.desk.text("out.txt") == "report\n"
        task = await self.alice.task(self.id)
        assert (task["final_answer"], task["run"]) == (ANSWER, runs)
        assert self.model.run(self.name).refusals == []


Stage = Callable[[Work, AsyncExitStack], AsyncIterator[None]]
"""Runs to the moment of the kill, yields, and goes on after the restart."""


async def before_it_begins(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    work.close("begin")
    await work.begin(stack)
    await work.at("begin")
    yield
    assert work.client.types == ["task_created"]
    work.gate("begin").open()
    await work.yes()
    await work.ends_well(runs=2)
    assert "task_recovered" not in work.client.types


async def while_the_model_speaks(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    work.asking.released.clear()
    await work.begin(stack)
    await work.client.words(10)
    yield
    work.asking.release()
    await work.yes()
    await work.ends_well(runs=3)
    assert work.client.types.count("task_recovered") == 1
    assert work.client.types.count("assistant_message") == 2, "no half answer was kept"


async def while_it_reads(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    work.close("a.txt.after")
    await work.begin(stack)
    await work.at("a.txt.after")
    await work.client.seen("tool_call_started")  # stored a moment after the read began
    yield
    assert work.client.types[-1] == "tool_call_started"
    work.gate("a.txt.after").open()
    await work.yes()
    await work.ends_well(runs=3)
    assert work.client.types.count("tool_call_started") == 3, "the read was repeated"


async def while_it_waits(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    await work.begin(stack)
    approval = await work.client.approval()
    (before,) = await work.alice.pending(work.id)
    yield
    (after,) = await work.alice.pending(work.id)
    told = after.pop("notices") - before.pop("notices")
    assert told in (0, 1), "people may have been told of it meanwhile"
    assert after == before, "the card is the same, with all its arguments"
    assert (await work.alice.task(work.id))["status"] == "waiting_approval"
    assert work.desk.text("out.txt") is None
    await work.alice.approve(approval)
    await work.ends_well(runs=2)


async def between_yes_and_the_run(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    await work.begin(stack)
    approval = await work.client.approval()
    work.close("begin")
    await work.alice.approve(approval)
    await work.at("begin")
    assert work.desk.text("out.txt") is None
    yield
    work.gate("begin").open()
    await work.ends_well(runs=2)


async def before_the_effect(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    work.close("out.txt.before")
    await work.begin(stack)
    await work.yes()
    await work.at("out.txt.before")
    yield
    work.gate("out.txt.before").open()
    assert (await work.client.seen("approval_required", 2)).payload["kind"] == "unknown_effect"
    assert work.desk.text("out.txt") is None, "not repeated without being asked"
    await work.yes(2, answer="retry")
    await work.ends_well(runs=4)
    assert work.gate("out.txt").calls == 1


async def after_the_effect(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    """The file was written, and its result not stored."""
    work.close("out.txt.after")
    await work.begin(stack)
    await work.yes()
    await work.at("out.txt.after")
    assert work.desk.text("out.txt") == "report\n"
    (work.desk.folder / "out.txt").write_text("edited by hand meanwhile\n")
    yield
    work.gate("out.txt.after").open()
    assert (await work.client.seen("approval_required", 2)).payload["kind"] == "unknown_effect"
    assert work.desk.text("out.txt") == "edited by hand meanwhile\n", "not repeated blindly"
    (work.desk.folder / "out.txt").write_text("report\n")
    await work.yes(2, answer="done")
    await work.ends_well(runs=4)
    assert work.gate("out.txt").calls == 1


async def while_the_answer_streams(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    work.answering.released.clear()
    await work.begin(stack)
    await work.yes()
    await work.client.words(10)
    yield
    work.answering.release()
    await work.ends_well(runs=3)
    assert work.client.types.count("agent_completed") == 1


async def after_an_edit(work: Work, stack: AsyncExitStack) -> AsyncIterator[None]:
    """It would find its own new text now, and change that again."""
    edit = Call("edit_file", path="a.txt", old="AAA", new="AAA and more")
    work.model.script(work.name, [edit], words(20))
    work.close("a.txt.after")
    await work.begin(stack)
    await work.yes()
    await work.at("a.txt.after")
    yield
    work.gate("a.txt.after").open()
    assert (await work.client.seen("approval_required", 2)).payload["kind"] == "unknown_effect"
    await work.yes(2, answer="done")
    await work.client.end()
    await work.house.check(work.alice, work.id, work.client)
    assert "AAA and more" in (work.desk.text("a.txt") or "")
    assert "more and more" not in (work.desk.text("a.txt") or "")
    assert work.gate("a.txt").calls == 1


STAGES: list[Stage] = [
    before_it_begins,
    while_the_model_speaks,
    while_it_reads,
    while_it_waits,
    between_yes_and_the_run,
    before_the_effect,
    after_the_effect,
    after_an_edit,
    while_the_answer_streams,
]


async def finished(scene: AsyncIterator[None]) -> None:
    async for _ in scene:
        raise AssertionError("a stage is killed once")
