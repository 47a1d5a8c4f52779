"""What followers see, whatever the timing: the real hub and the real loop over a log in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.events import (
    AssistantDelta,
    AssistantMessageAdded,
    TaskCancelled,
    ToolCallFinished,
    ToolCallStarted,
    ToolProgress,
)
from streaming.follow import follow
from streaming.source import Greeting
from tasks.hub import StoredFrame
from tests.streaming.world import (
    Client,
    Run,
    World,
    call_started,
    finish,
    kinds,
    message,
    note,
    retried,
    settle,
    started,
    texts,
)
from tests.support.sse import Parser, Reader

pytestmark = pytest.mark.usefixtures("clean_hub")


async def test_a_follower_sees_the_log_and_the_answer_as_it_is_written(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "Hel")
    await settle()
    run.delta("a", "lo")
    await finish(run, client)

    assert client.reader.ids == [1, 2, 3, 4, 5, 6]
    assert [(e.type, e.payload.get("delta")) for e in client.reader.live[1:]] == [
        ("assistant_delta", "Hel"),
        ("assistant_delta", "lo"),
    ]
    assert client.parser.comments == ["connected"]
    assert client.parser.retry == 2000
    assert client.reader.live[0].type == "connected"


async def test_two_followers_see_identical_ids(run: Run) -> None:
    first = Client(run.source())
    run.delta("a", "one ")
    await settle()
    second = Client(run.source())
    run.delta("a", "two")
    await finish(run, first, second)

    assert first.reader.ids == second.reader.ids == [1, 2, 3, 4, 5, 6]
    assert texts(first) == texts(second) == ["one two"]


async def test_an_event_committed_between_replay_and_attach_is_not_lost(run: Run) -> None:
    """It is visible to the database before the hub hears of it, or the other way round."""
    for early in range(8):
        client = Client(run.source())
        await settle(early)
        run.commit(note(), publish=False)
        await settle(1)
        run.world.publish()
        await settle()
        assert client.reader.ids == list(range(1, len(run.rows) + 1))
        await client.leave()
    run.end()


@pytest.mark.parametrize("greeted", [False, True], ids=["with a page", "with the greeting"])
async def test_a_message_read_before_the_hub_hears_of_it_ends_its_block(
    run: Run, greeted: bool
) -> None:
    """Without it, a late joiner gets the open block after its own stored message."""
    run.delta("a", "the whole answer")
    run.commit(*run.reply(), publish=False)
    source = run.source()

    async def greet() -> Greeting:
        return replace(await source.greet(), first=list(run.rows) if greeted else [])

    client = Client(replace(source, greet=greet))
    await settle()
    assert client.reader.ids == [1, 2, 3, 4]
    run.world.publish()
    await settle()
    assert "snapshot" not in kinds(client)
    await finish(run, client)


async def test_a_block_goes_out_only_after_the_event_that_it_began_after(run: Run) -> None:
    client = Client(run.source())
    await settle()
    client.going.clear()
    run.commit(note())
    await settle()
    run.commit(note())
    run.delta("a", "late")
    client.going.set()
    await settle()
    assert client.reader.ids == [1, 2, 3, 4]
    assert client.reader.live[-1].payload["delta"] == "late"
    await finish(run, client)


async def test_what_is_live_waits_for_its_event_while_the_reader_asks_for_extras(run: Run) -> None:
    """The log moves on, and a block opens, between the last stored event and the live state."""

    class Asking:
        asked = 0

        def after(self, frame: StoredFrame) -> bytes:
            return b": after %d\n\n" % frame.sequence

        async def level(self, cursor: int) -> bytes:
            self.asked += 1
            if self.asked == 1:
                run.commit(note())
                run.delta("a", "early?")
                run.live(ToolProgress(tool_call_id="c", text="early?"))
            await asyncio.sleep(0)
            return b""

    parser, reader = Parser(), Reader()
    stream = follow(run.source(), 0, Asking())
    while parser.comments[-1:] != ["after 3"] or not reader.open_blocks:
        for event in parser.feed(await anext(stream)):
            early = event.type in ("assistant_delta", "tool_progress")
            assert not early or reader.last_id == 3
            reader.apply(event)
    assert parser.comments == ["connected", "after 1", "after 2", "after 3"]
    assert reader.live[-1].type == "tool_progress"
    await stream.aclose()
    run.end()


async def test_text_reasoning_and_calls_interleaved_in_one_reply(run: Run) -> None:
    early = Client(run.source())
    await settle()
    late = early
    for word in range(20):
        run.delta("think", f"so {word} ", "reasoning")
        run.delta("say", f"word {word} ")
        run.delta("call", f'"{word}",', "tool_call")
        if word == 10:
            late = Client(run.source())
        await settle(3)
    whole = dict(run.blocks)
    await finish(run, early, late)

    assert texts(early) == texts(late) == [whole["think"][1], whole["say"][1]]
    for client in (early, late):
        assert client.reader.calls == {(run.task_id, "call"): whole["call"][1]}
    assert kinds(late).count("snapshot") == 3
    assert "snapshot" not in kinds(early)
    snapshots = [e.payload for e in late.reader.live if e.type == "snapshot"]
    assert {s["kind"] for s in snapshots} == {"text", "reasoning", "tool_call"}
    assert [s.get("name") for s in snapshots if s["kind"] == "tool_call"] == ["read_file"]


async def test_the_missing_tail_goes_out_before_the_stored_message(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "seen, ")
    await settle()
    client.going.clear()
    run.delta("a", "missed, ")
    await settle()
    run.delta("a", "missed too")
    run.commit(*run.reply())
    client.going.set()
    await settle()
    deltas = [e.payload["delta"] for e in client.reader.live if e.type == "assistant_delta"]
    assert "".join(deltas) == "seen, missed, missed too"
    await finish(run, client)


async def test_a_stored_text_completes_what_the_deltas_left_out(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "half")
    await settle()
    run.commit(message("a", "text", "half and half"))
    await settle()
    assert client.reader.live[-1].payload == {
        "step": 1,
        "block_id": "a",
        "offset": 4,
        "delta": " and half",
    }
    run.drop_blocks()
    await finish(run, client)


async def test_a_cancelled_reply_keeps_what_was_watched_and_ends_the_stream(run: Run) -> None:
    clients = [Client(run.source()), Client(run.source())]
    run.delta("a", "ten words, then ")
    run.delta("call", '{"path": "a.t', "tool_call")
    await settle()
    clients[1].going.clear()
    run.delta("a", "silence")
    partial = AssistantMessageAdded(
        step=1, block_id="a", text="ten words, then silence", partial=True
    )
    run.commit(partial, TaskCancelled(by="alice"))
    run.end()
    clients[1].going.set()
    await asyncio.gather(*(client.task for client in clients))
    for client in clients:
        assert client.reader.ids == [1, 2, 3, 4]
        assert client.reader.open_blocks == {}


async def test_a_retried_attempt_is_dropped_and_not_mixed_with_the_next(run: Run) -> None:
    behind, level = Client(run.source()), Client(run.source())
    await settle()
    run.delta("a", "bad att")
    await settle()
    behind.going.clear()
    run.delta("a", "empt")
    await settle()
    run.commit(retried(), call_started())
    run.drop_blocks()
    run.delta("b", "good")
    await settle()
    joined = Client(run.source())
    await settle()
    assert "bad" not in str(joined.reader.live)
    behind.going.set()
    await finish(run, behind, level, joined)
    assert texts(behind) == texts(level) == texts(joined) == ["good"]


async def test_an_attempt_that_reuses_the_block_id_starts_from_nothing(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "bad attempt")
    await settle()
    run.commit(retried())
    run.drop_blocks()
    await settle()
    client.reader.ended_blocks.clear()
    run.delta("a", "good")
    await settle()
    assert client.reader.live[-1].payload["delta"] == "good"
    await finish(run, client)
    assert texts(client) == ["good"]


async def test_a_run_that_stops_without_storing_leaves_no_open_block(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "unfinished")
    await settle()
    run.end()
    run.drop_blocks()
    late = Client(run.source())
    await settle()
    assert "snapshot" not in kinds(late)
    run.begin()
    run.commit(started(2), call_started())
    run.delta("b", "again")
    await finish(run, client, late)
    assert texts(client) == texts(late) == ["again"]


async def test_progress_is_the_latest_of_each_running_call(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.commit(ToolCallStarted(step=1, tool_call_id="c"))
    await settle()
    client.going.clear()
    for done in range(10):
        run.live(ToolProgress(tool_call_id="c", text="reading", done=done, total=10))
        await settle(1)
    client.going.set()
    late = Client(run.source())
    await settle()
    seen = [e.payload["done"] for e in client.reader.live if e.type == "tool_progress"]
    assert seen in ([9], [0, 9])
    assert late.reader.live[-1].payload == {
        "tool_call_id": "c",
        "text": "reading",
        "done": 9,
        "total": 10,
    }
    run.commit(ToolCallFinished(step=1, tool_call_id="c", ok=True, content="ok"))
    after = Client(run.source())
    await settle()
    assert "tool_progress" not in kinds(after)
    await finish(run, client, late, after)


async def test_a_delta_with_a_hole_is_not_shown(run: Run) -> None:
    client = Client(run.source())
    await settle()
    run.delta("a", "abc")
    run.live(AssistantDelta(step=1, block_id="a", offset=7, delta="hole"))
    run.live(AssistantDelta(step=1, block_id="b", offset=3, delta="no beginning"))
    run.live(AssistantDelta(step=1, block_id="a", offset=0, delta="abc"))
    await settle()
    assert [e.payload["delta"] for e in client.reader.live[1:]] == ["abc"]
    await finish(run, client)


async def test_deltas_of_a_task_that_runs_nowhere_here_go_nowhere() -> None:
    run = World().task()
    client = Client(run.source())
    await settle()
    run.delta("a", "who says this?")
    await settle()
    assert kinds(client) == ["connected"]
    await client.leave()
