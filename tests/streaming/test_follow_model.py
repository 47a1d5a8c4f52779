"""Random interleavings of writing, committing, hearing of it, joining, pausing and leaving.

`Reader` checks every event of every client: ids without a gap, deltas at their offset, nothing of a
block after its end, and that the deltas of a block add up to its stored text.
"""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.events import (
    ErrorInfo,
    ModelCallRetried,
    TaskStarted,
    UserMessageAdded,
)
from tasks.hub import Key, hub
from tests.streaming.world import END, Client, Run, World, settle

KINDS = ("text", "reasoning", "tool_call")
RETRIED = ModelCallRetried(
    step=1, attempt=1, error=ErrorInfo(code="cut", message="cut"), delay_seconds=0
)
NOTE = UserMessageAdded(message_id="m", text="and this", by="alice")

steps = st.one_of(
    st.tuples(st.just("delta"), st.sampled_from(KINDS), st.integers(1, 3)),
    st.tuples(st.just("reply"), st.booleans()),
    st.tuples(st.just("note"), st.booleans()),
    st.tuples(st.just("other_process"), st.booleans()),
    st.tuples(st.just("retry"), st.booleans()),
    st.tuples(st.just("crash"), st.booleans()),
    st.tuples(st.just("next_task")),
    st.tuples(st.just("publish")),
    st.tuples(st.just("join"), st.sampled_from(("task", "session")), st.integers(0, 12)),
    st.tuples(st.just("pause"), st.integers(0, 5)),
    st.tuples(st.just("go"), st.integers(0, 5)),
    st.tuples(st.just("leave"), st.integers(0, 5)),
    st.tuples(st.just("turns"), st.integers(1, 6)),
)


class Play:
    """Performs the steps."""

    def __init__(self) -> None:
        self.world = World()
        self.clients: list[Client] = []
        self.blocks = 0
        self.run = self.begin()

    def begin(self) -> Run:
        run = self.world.task()
        run.begin()
        run.commit(TaskStarted(run=1, reason="start", model="m", limits={}, mode="ask"))
        return run

    async def step(self, name: str, *args: object) -> None:
        await getattr(self, name)(*args)

    async def delta(self, kind: str, length: int) -> None:
        # A runner is told of its commit after the hub is: its next delta finds the hub level.
        self.world.publish()
        block = next((b for b, (k, _) in self.run.blocks.items() if k == kind), None)
        if block is None:
            self.blocks += 1
            block = f"{kind} {self.blocks}"
        self.run.delta(block, "aé漢"[:length], kind)

    async def reply(self, publish: bool) -> None:
        self.run.commit(*self.run.reply(), publish=publish)

    async def note(self, publish: bool) -> None:
        self.run.commit(NOTE, publish=publish)

    async def other_process(self, watched: bool) -> None:
        self.world.publish()
        self.run.commit(NOTE, publish=False)
        self.world.unpublished.clear()
        if watched:
            hub.advanced(Key("task", self.run.task_id), len(self.run.rows))
            hub.advanced(Key("session", self.world.session_id), len(self.world.rows))

    async def retry(self, publish: bool) -> None:
        self.run.drop_blocks()
        self.run.commit(RETRIED, publish=publish)

    async def crash(self, stored_before: bool) -> None:
        self.world.publish()
        self.run.end()
        self.run.drop_blocks()
        self.run.begin()
        self.run.commit(
            TaskStarted(run=2, reason="recover", model="m", limits={}, mode="ask"),
            publish=stored_before,
        )

    async def next_task(self) -> None:
        self.finish()
        self.run = self.begin()

    async def publish(self) -> None:
        self.world.publish()

    async def join(self, kind: str, seen: int) -> None:
        if len(self.clients) < 6:
            rows = self.run.rows if kind == "task" else self.world.rows
            source = self.run.source() if kind == "task" else self.world.session_source()
            self.clients.append(Client(source, min(seen, len(rows)) or None))

    async def pause(self, which: int) -> None:
        if which < len(self.clients):
            self.clients[which].going.clear()

    async def go(self, which: int) -> None:
        if which < len(self.clients):
            self.clients[which].going.set()

    async def leave(self, which: int) -> None:
        if which < len(self.clients):
            await self.clients.pop(which).leave()

    async def turns(self, number: int) -> None:
        await settle(number)

    def finish(self) -> None:
        self.run.commit(*self.run.reply(), *END)
        self.run.end()

    async def curtain(self) -> None:
        """Everybody reads to the end."""
        self.finish()
        for client in self.clients:
            client.going.set()
        await settle(60)
        for client in self.clients:
            if client.task.done():
                client.task.result()
                assert client.reader.ended or not client.reader.ids
            else:
                assert client.reader.last_id == len(self.world.rows)
                assert client.reader.open_blocks == {}
                await client.leave()
        assert hub.is_empty()


async def perform(script: list[tuple[object, ...]]) -> None:
    hub.attach(asyncio.get_running_loop())
    try:
        play = Play()
        for name, *args in script:
            await play.step(str(name), *args)
        await play.curtain()
    finally:
        hub.detach()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=60))
def test_every_client_sees_a_valid_stream_whatever_the_timing(
    script: list[tuple[object, ...]],
) -> None:
    asyncio.run(perform(script))
