"""What a failing or a greedy MCP server may cost: pauses between its starts, memory, processes."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from agent.bounds import MAX_FILE_BYTES, MAX_PROCESSES
from agent.errors import ToolFailed
from agent.mcp.backoff import MAX_KNOWN, MAX_SECONDS, Backoff
from agent.mcp.results import Broken
from tests.support.clock import Clock
from tests.support.mcp import declared, desk, entry
from tests.support.needs import needs_sandbox

UNBOXED = pytest.param({"sandbox": False}, id="none")
BOTH = [pytest.param({}, id="sandbox", marks=needs_sandbox), UNBOXED]
MB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    return place


# ── pauses ────────────────────────────────────────────────────────────────────────────────────


def test_pauses_become_longer_up_to_a_bound_and_end_with_a_success(clock: Clock) -> None:
    backoff, pauses = Backoff(clock), []
    for _ in range(40):
        backoff.failed("notes")
        pauses.append(backoff.pause("notes"))
    assert pauses[:9] == [0, 0, 1, 2, 4, 8, 16, 32, MAX_SECONDS]
    assert set(pauses[9:]) == {MAX_SECONDS}
    assert backoff.pause("another") == 0

    clock.now += MAX_SECONDS - 1
    assert backoff.pause("notes") == 1
    clock.now += 2
    assert backoff.pause("notes") == 0
    backoff.worked("notes")
    backoff.failed("notes")
    assert (backoff.failures("notes"), backoff.pause("notes")) == (1, 0)


def test_only_so_many_failing_servers_are_remembered(clock: Clock) -> None:
    backoff = Backoff(clock)
    for number in range(MAX_KNOWN + 1):
        backoff.failed(number)
        backoff.failed("notes")
    assert backoff.failures("notes") == MAX_KNOWN + 1
    assert [backoff.failures(number) for number in (0, 1, 2, MAX_KNOWN)] == [0, 0, 1, 1]


async def test_a_server_that_breaks_at_each_call_is_not_started_at_each_call(
    folder: Path, clock: Clock
) -> None:
    backoff = Backoff(clock)
    servers = declared(bad=entry("crash_call", sandbox=False))
    async with desk(folder, servers, backoff=backoff) as one:
        await one.accept()
        said = [(await one.call("bad_echo", q=str(turn))).content for turn in range(5)]
        assert [text.endswith("it ended.") for text in said] == [True] * 3 + [False] * 2
        assert "failed 3 times in a row and is not started again for 1 seconds" in said[-1]
        assert len(one.noticed) == 3

        clock.now += 1
        assert (await one.call("bad_echo", q="x")).content.endswith("it ended.")
        assert "for 2 seconds" in (await one.call("bad_echo", q="x")).content
        assert len(one.noticed) == 4


async def test_the_next_run_in_the_workspace_waits_too_and_another_workspace_does_not(
    folder: Path, tmp_path: Path, clock: Clock
) -> None:
    backoff = Backoff(clock)
    bad = declared(bad=entry("crash_init", sandbox=False))
    for _ in range(3):
        async with desk(folder, bad, backoff=backoff) as run:
            with pytest.raises(Broken, match="it did not begin"):
                await run.accept()
    async with desk(folder, bad, backoff=backoff) as run:
        with pytest.raises(ToolFailed, match="not started again for 1 seconds"):
            await run.accept()
    other = tmp_path / "other"
    other.mkdir()
    async with desk(other, bad, backoff=backoff) as run:
        with pytest.raises(Broken, match="it did not begin"):
            await run.accept()


async def test_calls_that_one_crash_breaks_count_once_and_an_answer_forgives(
    folder: Path, clock: Clock
) -> None:
    backoff = Backoff(clock)
    async with desk(
        folder, declared(bad=entry("crash_call", sandbox=False)), backoff=backoff
    ) as one:
        await one.accept()
        await asyncio.gather(*(one.call("bad_echo", q=str(turn)) for turn in range(4)))
        assert backoff.failures(("bad", folder)) == 1
    async with desk(folder, declared(bad=entry(sandbox=False)), backoff=backoff) as one:
        await one.accept()
        assert (await one.call("bad_echo", q="x")).ok
        assert backoff.failures(("bad", folder)) == 0


async def test_a_cancelled_call_is_not_the_servers_failure(folder: Path, clock: Clock) -> None:
    backoff = Backoff(clock)
    async with desk(
        folder, declared(bad=entry("hang_call", sandbox=False)), backoff=backoff
    ) as one:
        await one.accept()
        call = asyncio.create_task(one.call("bad_echo", q="1"))
        await asyncio.wait({call}, timeout=0.2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert backoff.failures(("bad", folder)) == 0


# ── bounds ────────────────────────────────────────────────────────────────────────────────────


GROW = {"grow": {"capability": "test:read"}, "limits": {"capability": "test:read"}}


@pytest.mark.parametrize("how", BOTH)
async def test_the_kernel_holds_what_it_can_for_each_process(
    folder: Path, how: dict[str, Any]
) -> None:
    async with desk(folder, declared(bad=entry(tools=GROW, memory_mb=512, **how))) as one:
        await one.accept()
        held = json.loads((await one.call("bad_limits")).content)
    assert held["RLIMIT_CORE"] == 0
    assert held["RLIMIT_DATA"] == 512 * MB
    assert held["RLIMIT_FSIZE"] == MAX_FILE_BYTES
    ours = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    assert held["RLIMIT_NPROC"] == (ours if how else MAX_PROCESSES)


@pytest.mark.parametrize("how", BOTH)
async def test_a_server_whose_processes_use_too_much_memory_together_is_ended(
    folder: Path, how: dict[str, Any]
) -> None:
    async with desk(folder, declared(bad=entry(tools=GROW, memory_mb=128, **how))) as one:
        await one.accept()
        result = await one.call("bad_grow", processes=4, megabytes=48)
    assert not result.ok
    assert result.content.endswith("it used more than 128 MB of memory.")


@pytest.mark.parametrize("how", BOTH)
async def test_a_server_never_has_too_many_processes(folder: Path, how: dict[str, Any]) -> None:
    # What they share counts for each of them: with less, a look in between finds too much memory.
    server = entry(tools=GROW, memory_mb=64 * 1024, **how)
    async with desk(folder, declared(bad=server)) as one:
        await one.accept()
        result = await one.call("bad_grow", processes=MAX_PROCESSES + 20, megabytes=0)
    ended = result.content.endswith(f"it had more than {MAX_PROCESSES} processes.")
    refused = not how and result.content.startswith("no more: ")  # by the kernel, but not to root
    assert ended or refused, result.content
