"""run_command: bounds of time, memory and output, and what is left when it is stopped."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Callable

import pytest

from agent.processes import use_of
from agent.tools.output import HEAD_BYTES, TAIL_BYTES
from agent.tools.shell import Shell
from tests.support.needs import needs_sandbox
from tests.support.shell import BOTH, LINUX, Desk, lifeline, with_sandbox, without_sandbox
from tests.support.waiting import happened

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


@pytest.mark.parametrize("shell", BOTH)
async def test_time_is_bounded_with_what_came_until_then(
    desk: Desk, shell: Callable[..., Shell]
) -> None:
    done = await desk.run(shell(seconds=1.0) if shell is with_sandbox else Shell(
        seconds=1.0, sandbox=lambda: None, unsandboxed=True
    ), "echo begun; touch made; (sleep 700; touch late) & sleep 700")  # fmt: skip
    assert not done.ok
    assert "took longer than 1 seconds" in done.content
    assert "begun" in done.content
    assert "created made" in done.content


@pytest.mark.parametrize("shell", BOTH)
async def test_output_without_end_is_cut_while_it_comes(
    desk: Desk, shell: Callable[..., Shell]
) -> None:
    before = use_of(os.getpid()).memory
    done = await desk.run(
        shell(), "echo first; head -c 100M /dev/zero | tr '\\0' x; echo; echo last"
    )
    assert done.ok
    assert done.details["output_bytes"] > 100_000_000
    assert done.content.startswith("[Exit status 0.]\nfirst\nxxx")
    assert done.content.endswith("xxx\nlast")
    assert len(done.content) < HEAD_BYTES + TAIL_BYTES + 500
    assert use_of(os.getpid()).memory - before < 60_000_000


@pytest.mark.parametrize("shell", BOTH)
async def test_memory_is_bounded_for_all_processes_together(
    desk: Desk, shell: Callable[..., Shell]
) -> None:
    line = "for i in 1 2 3 4 5 6; do (head -c 90M /dev/zero | tail | sleep 100) & done; wait"
    done = await desk.run(shell(), line)
    assert "used more than 256 MB" in done.content
    alone = await desk.run(shell(), "head -c 500M /dev/zero | tail | wc -c")
    assert "\n0" in alone.content or "256 MB" in alone.content


@needs_sandbox
@pytest.mark.parametrize(
    "line",
    [
        "for i in $(seq 400); do sleep 100 & done; wait; sleep 100",
        pytest.param("f() { f | f & sleep 100; }; f; wait; sleep 100", marks=pytest.mark.long),
    ],
    ids=["one by one", "each makes two"],
)
async def test_a_fork_bomb_ends(desk: Desk, line: str) -> None:
    done = await desk.run(with_sandbox(), line)
    assert not done.ok
    assert "more than 256 processes" in done.content or "memory" in done.content.lower()


@pytest.mark.parametrize("shell", BOTH)
async def test_background_processes_end_with_the_line(
    desk: Desk, shell: Callable[..., Shell]
) -> None:
    with lifeline(desk) as last_is_gone:
        done = await desk.run(shell(), "exec 9>life; sleep 300 & nohup sleep 300 & echo done")
        assert done.content.startswith("[Exit status 0.]\ndone")
        await last_is_gone()


@needs_sandbox
async def test_what_starts_a_session_of_its_own_ends_in_the_sandbox(desk: Desk) -> None:
    with lifeline(desk) as last_is_gone:
        await desk.run(with_sandbox(), "exec 9>life; setsid sleep 300 & echo done")
        await last_is_gone()


@pytest.mark.parametrize("shell", BOTH)
async def test_cancelling_kills_everything(desk: Desk, shell: Callable[..., Shell]) -> None:
    with lifeline(desk) as last_is_gone:
        line = "exec 9>life; touch started; sleep 300 & sleep 300"
        running = asyncio.create_task(desk.run(shell(), line))
        await happened((desk.folder / "started").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await last_is_gone()


@needs_sandbox
async def test_cancelling_ends_sessions_and_orphans_too(desk: Desk) -> None:
    with lifeline(desk) as last_is_gone:
        away = "(setsid sh -c 'setsid sleep 300 & exec sleep 300' &)"
        line = f"exec 9>life; {away}; (sleep 300 & disown) & trap '' TERM HUP; touch started; sleep 300"
        running = asyncio.create_task(desk.run(with_sandbox(), line))
        await happened((desk.folder / "started").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await last_is_gone()


SERVER = """
import asyncio, sys
from pathlib import Path
from agent.sandbox import bubblewrap
from agent.toolbox import Toolbox, ToolContext
from agent.tools.shell import Shell
from agent.workspace import Workspace
folder, mode, line = sys.argv[1:]
shell = Shell() if mode == "sandbox" else Shell(sandbox=lambda: None, unsandboxed=True)
context = ToolContext(workspace=Workspace(Path(folder)))
asyncio.run(Toolbox([shell.tool()]).run("run_command", {"command": line}, context))
"""


@pytest.mark.skipif(not LINUX, reason="looks into /proc")
@pytest.mark.parametrize(
    "mode", [pytest.param("sandbox", marks=needs_sandbox), pytest.param("none")]
)
async def test_a_server_that_is_killed_takes_its_commands_along(desk: Desk, mode: str) -> None:
    line = "exec 9>life; touch started; (sleep 300) & sleep 300"
    with lifeline(desk) as last_is_gone:
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SERVER, str(desk.folder), mode, line
        )
        await happened((desk.folder / "started").exists)
        server.kill()
        await server.wait()
        await last_is_gone()


async def test_one_command_at_a_time_in_a_workspace(desk: Desk) -> None:
    line = "echo begin >> log; sleep 0.1; echo end >> log"
    await asyncio.gather(*(desk.run(without_sandbox(), line) for _ in range(3)))
    assert (desk.folder / "log").read_text() == "begin\nend\n" * 3
