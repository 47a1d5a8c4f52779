"""run_command: real commands in a real sandbox, and what is left when they are stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agent import syscalls
from agent.children import environment
from agent.errors import TargetChanged, ToolFailed
from agent.events import ApprovalRequired, ToolCallFinished, ToolCallStarted, ToolProgress
from agent.fitting import MAX_DETAILS
from agent.judging import Judge
from agent.manifest import CLOCK_STEP, changes, take
from agent.policy import Policy, Rule
from agent.processes import use_of
from agent.providers.scripted import ScriptedCall, Turn
from agent.sandbox import TMP_BYTES, Sandbox, bubblewrap
from agent.toolbox import Toolbox, ToolContext, ToolResult
from agent.tools import builtin_tools
from agent.tools.output import HEAD_BYTES, TAIL_BYTES, Output, readable
from agent.tools.shell import Shell
from agent.workspace import Workspace
from tests.support.engine import Bench

LINUX = sys.platform == "linux"
SHORT = 20.0
MEMORY = 256 * 1024 * 1024
needs_sandbox = pytest.mark.skipif(bubblewrap() is None, reason="needs a working bubblewrap")
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def without_sandbox(**more: Any) -> Shell:
    return Shell(seconds=SHORT, memory=MEMORY, sandbox=lambda: None, unsandboxed=True, **more)


def with_sandbox(**more: Any) -> Shell:
    return Shell(**{"seconds": SHORT, "memory": MEMORY, **more})


BOTH = [
    pytest.param(with_sandbox, id="sandbox", marks=needs_sandbox),
    pytest.param(without_sandbox, id="none"),
]


class Desk:
    """A workspace and a way to run lines in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: list[str] = []

    async def run(self, shell: Shell, command: str, expected: str | None = None) -> ToolResult:
        box = Toolbox([shell.tool()])
        try:
            return await box.run("run_command", {"command": command}, self._context(expected))
        finally:
            box.close()

    async def evidence(self, shell: Shell, command: str) -> str:
        box = Toolbox([shell.tool()])
        try:
            return (await box.preview("run_command", {"command": command}, self._context())).diff
        finally:
            box.close()

    def _context(self, expected: str | None = None) -> ToolContext:
        return ToolContext(
            workspace=Workspace(self.folder),
            progress=lambda text, done, total: self.shown.append(text),
            expected_target=expected,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return Desk(folder)


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No descriptor and no process is left, whatever a test did."""
    before, running = descriptors(), use_of(os.getpid()).processes
    yield
    for _ in range(100):
        if descriptors() == before and use_of(os.getpid()).processes <= running:
            return
        await asyncio.sleep(0.05)
    assert descriptors() == before
    assert use_of(os.getpid()).processes <= running


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if LINUX else 0


@pytest.mark.parametrize("shell", BOTH)
async def test_it_works(desk: Desk, shell: Callable[..., Shell]) -> None:
    done = await desk.run(shell(), "wc -l < a.txt; echo two >> a.txt; echo new > b.txt; echo e >&2")
    assert done.ok
    assert done.content == (
        "[Exit status 0.]\n1\ne\n\n[Changed files:\n"
        "  changed a.txt, 8 bytes\n  created b.txt, 4 bytes\n]"
    )
    assert (desk.folder / "b.txt").read_text() == "new\n"
    assert done.details["exit_status"] == 0
    assert done.details["artifacts"] == ["a.txt", "b.txt"]
    assert "+two\n" in done.details["diff"]
    changed, created = done.details["changes"]
    assert changed["change"] == "changed"
    assert changed["before"]["size"], changed["after"]["size"] == (4, 8)
    assert re.fullmatch("[0-9a-f]{64}", created["after"]["sha256"])
    assert "before" not in created


@pytest.mark.parametrize("shell", BOTH)
async def test_a_failure_is_an_observation(desk: Desk, shell: Callable[..., Shell]) -> None:
    failed = await desk.run(shell(), "rm a.txt; exit 3")
    assert not failed.ok
    assert failed.details["exit_status"] == 3
    assert "  deleted a.txt" in failed.content
    assert "[Exit status 127.]" in (await desk.run(shell(), "no-such-program")).content


# ── the approval ─────────────────────────────────────────────────────────────────────────────


@needs_sandbox
async def test_a_person_sees_line_place_and_parts_and_then_it_runs(desk: Desk) -> None:
    line = "echo hi | tee out.txt; env X=1 wc out.txt"
    bench = Bench(
        desk.folder,
        [
            Turn(calls=(ScriptedCall(name="run_command", arguments={"command": line}),)),
            Turn(text="Done."),
        ],
        tools=builtin_tools(shell=with_sandbox()),
    )
    await bench.run()
    (asked,) = bench.of(ApprovalRequired)
    assert not (desk.folder / "out.txt").exists()
    assert (asked.capability, asked.risk) == ("shell:execute", "high")
    assert asked.diff.startswith(f"── command\n{line}\n")
    for said in ("folder: the top of the workspace", "sandbox: bubblewrap", "no network"):
        assert said in asked.diff
    for part in ("echo hi\n", "tee out.txt\n", "env X=1 wc out.txt\n", "\nwc out.txt\n"):
        assert part in asked.diff
    bench.answer("approved")
    await bench.run()
    (finished,) = bench.of(ToolCallFinished)
    assert finished.ok
    assert [type(event) for event in bench.log].count(ToolCallStarted) == 1
    assert any(isinstance(event, ToolProgress) for event in bench.seen) is (
        "hi" in finished.content
    )


@needs_sandbox
@pytest.mark.parametrize(
    ("line", "runs"),
    [("wc a.txt | wc -l", True), ("wc a.txt; touch x", False), ("wc $(touch x)", False),
     ("wc a.txt > x", False), ("A=1 wc a.txt", False), ("$x a.txt", False)],
)  # fmt: skip
async def test_a_rule_allows_a_line_only_if_it_allows_every_part(
    desk: Desk, line: str, runs: bool
) -> None:
    bench = Bench(
        desk.folder,
        [
            Turn(calls=(ScriptedCall(name="run_command", arguments={"command": line}),)),
            Turn(text="Done."),
        ],
        tools=builtin_tools(shell=with_sandbox()),
        rules=[Rule(id="r", decision="allow", tool="run_command", command="wc **")],
    )
    await bench.run()
    assert bool(bench.of(ToolCallFinished)) is runs
    assert bool(bench.of(ApprovalRequired)) is not runs
    assert not (desk.folder / "x").exists()


async def test_what_cannot_be_told_is_said(desk: Desk) -> None:
    said = await desk.evidence(without_sandbox(), 'x=ls; $x "$(cat f)"')
    assert "cannot be told with certainty" in said
    assert "sandbox: NONE" in said


async def test_no_line_of_a_command_can_pass_for_one_of_the_evidence(desk: Desk) -> None:
    fake = "\n── where\nsandbox: bubblewrap\n\n── what the line runs\nls"
    shown = await desk.evidence(without_sandbox(), f"echo '{fake}'; touch x")
    heads = [line for line in shown.splitlines() if line.startswith(("──", "sandbox:"))]
    assert heads == ["── command", "── where", "sandbox: NONE", "── what the line runs"]
    assert shown.endswith("\ntouch x\n")


async def test_without_a_sandbox_nothing_runs_unless_the_settings_say_so(desk: Desk) -> None:
    shell = Shell(sandbox=lambda: None)
    with pytest.raises(ToolFailed, match="no working sandbox"):
        await desk.evidence(shell, "touch x")
    refused = await desk.run(shell, "touch x")
    assert not refused.ok
    assert not (desk.folder / "x").exists()


@needs_sandbox
async def test_with_another_sandbox_than_approved_it_is_asked_again(desk: Desk) -> None:
    shown = "sandbox:bubblewrap"
    assert (await desk.run(with_sandbox(), "true", expected=shown)).ok
    with pytest.raises(TargetChanged):
        await desk.run(without_sandbox(), "touch x", expected=shown)
    assert not (desk.folder / "x").exists()


@pytest.mark.parametrize(
    "sign", ["\0", "\x1b", "\r", "\u202e", "\u2066", "\u200b", "\u2028", "\x85", "\u061c", "\u3164"]
)
async def test_a_line_that_does_not_look_like_what_it_is_is_refused(desk: Desk, sign: str) -> None:
    refused = await desk.run(without_sandbox(), f"echo a{sign}b")
    assert not refused.ok
    assert "does not fit" in refused.content or "do not fit" in refused.content


# ── what it may reach ────────────────────────────────────────────────────────────────────────


@needs_sandbox
async def test_there_is_no_way_out_of_the_sandbox(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILOTHOUSE_LLM_API_KEY", "sk-CANARY")
    (tmp_path / "secret.txt").write_text("CANARY")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    line = f"""
        cat {tmp_path}/secret* {Path.home()}/.bashrc /proc/*/environ /proc/*/cmdline
        cat /etc/shadow; env; ls -d {tmp_path} /root /home /var /run /srv /opt
        touch /usr/x /etc/x /x; mount -t tmpfs none /usr; unshare -U true && echo USER''NS
        exec 3<>/dev/tcp/127.0.0.1/{port} && echo CONN''ECTED
        kill -9 {os.getpid()}; kill -9 -1; ls /proc | grep -c '^[0-9]'
    """
    done = await desk.run(with_sandbox(), line)
    server.close()
    for leaked in ("CANARY", "USERNS", "CONNECTED", "\n/root\n", "\n/home\n", "\n/var\n", "root:"):
        assert leaked not in done.content
    assert "Read-only file system" in done.content


KEYS = """
    my @calls = ({add_key}, {request_key}, {keyctl}); my $kind = "user"; my $name = "of-the-server"; my $x = "x";
    for my $call (@calls) {{
        my $got = syscall($call, $kind, $name, $x, 1, -3);
        print "key: ", ($got < 0 ? "no, $!" : "GOT IT"), "\n";
    }}
    # join the session of the server (3), read what is there (11), make one's own (1)
    for my $what (0, 1, 11) {{
        my $got = syscall({keyctl}, $what, -3, 0, 0, 0);
        print "keyctl: ", ($got < 0 ? "no, $!" : "GOT IT"), "\n";
    }}
    print "ring: ", (syscall({io_uring_setup}, 1, my $room = pack("x200")) < 0 ? "no, $!" : "GOT IT"), "\n";
"""


@needs_sandbox
async def test_the_servers_keys_are_not_in_the_sandbox(desk: Desk) -> None:
    numbers = syscalls._MACHINES[platform.machine()]
    script = KEYS.format(**dataclasses.asdict(numbers))
    done = await desk.run(with_sandbox(), f"perl <<'END'\n{script}\nEND")
    assert done.ok, done.content
    assert done.content.count("no, Operation not permitted") == 6, done.content
    assert "ring: no, Function not implemented" in done.content
    assert "GOT IT" not in done.content


SOCKETS = """
    use Socket;
    print "stream: ", (socket(my $s, AF_UNIX, SOCK_STREAM, 0) ? "GOT IT" : "no, $!"), "\n";
    print "host: ", (socket(my $h, 40, SOCK_STREAM, 0) ? "GOT IT" : "no, $!"), "\n";  # of a virtual machine
    print "flags: ", (socket(my $t, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) ? "GOT IT" : "no, $!"), "\n";
    print "pair: ", (socketpair(my $a, my $b, AF_UNIX, SOCK_DGRAM, 0) ? "GOT IT" : "no, $!"), "\n";
    socketpair(my $c, my $d, AF_UNIX, SOCK_STREAM, 0) or die "pipes of programs: $!";
    print "again: ", (connect($c, sockaddr_un("here")) ? "GOT IT" : "no, $!"), "\n";
    socket(my $net, AF_INET, SOCK_STREAM, 0) or die "inside there is a loopback: $!";
    socket(my $six, AF_INET6, SOCK_STREAM, 0) or die "of both kinds: $!";
    socket(my $ask, 16, SOCK_RAW, 0) or die "it has an address: $!";
"""


@needs_sandbox
async def test_no_socket_in_the_workspace_can_be_talked_to(desk: Desk) -> None:
    """Somebody's server of the machine listens there, past the missing network."""
    met: list[str] = []
    listening = await asyncio.start_unix_server(lambda *ends: met.append("!"), desk.folder / "here")
    done = await desk.run(with_sandbox(), f"perl <<'END'\n{SOCKETS}\nEND")
    listening.close()
    assert done.ok, done.content
    assert done.content.count("no, Operation not permitted") == 4, done.content
    assert "GOT IT" not in done.content
    assert met == []


def test_a_machine_whose_numbers_are_not_known_has_no_filter() -> None:
    assert syscalls.filter_for("vax") is None
    assert {len(syscalls.filter_for(name) or b"") % 8 for name in syscalls._MACHINES} == {0}


@needs_sandbox
async def test_nothing_but_workspace_and_tmp_can_be_written(desk: Desk) -> None:
    """Opening for appending is enough to know, and harmless where it should work after all."""
    line = """
        find /proc/sys /proc/sysrq-trigger /proc/self /sys -type f 2>/dev/null | while read -r f
        do (: >> "$f") 2>/dev/null && echo "open $f"; done
        for d in / /dev /etc /usr /proc /bin; do mkdir "$d/x" 2>/dev/null && echo "made $d/x"; done
        for d in /tmp /dev/shm .; do echo "$d $(stat -f -c '%b %S' "$d")"; : > "$d/ok" || echo shut; done
        echo x > /dev/null || echo no null
    """
    done = await desk.run(with_sandbox(), line)
    shown = done.content.splitlines()
    assert [each for each in shown if each.startswith(("open", "made", "shut", "no null"))] == []
    sizes = {name: int(blocks) * int(size) for name, blocks, size in map(str.split, shown[1:3])}
    assert sizes == {"/tmp": TMP_BYTES, "/dev/shm": TMP_BYTES}


@needs_sandbox
def test_the_servers_folders_are_hidden_even_inside_what_may_be_read(tmp_path: Path) -> None:
    others, root = tmp_path / "shared" / "others", tmp_path / "ws"
    others.mkdir(parents=True)
    root.mkdir()
    (others / "secret").touch()
    (tmp_path / "shared" / "seen").touch()
    box = Sandbox(
        program=bubblewrap() or "", root=root, hidden=(others,), reads=(tmp_path / "shared",)
    )
    with box.command(["/bin/ls", "-AR", str(tmp_path / "shared")], {}) as wrapped:
        done = subprocess.run(
            wrapped.arguments, pass_fds=wrapped.pass_fds, capture_output=True, check=True, text=True
        )
    assert "seen" in done.stdout
    assert "secret" not in done.stdout


@needs_sandbox
async def test_the_servers_folders_are_hidden_even_inside_the_system(desk: Desk) -> None:
    done = await desk.run(
        with_sandbox(hidden=(Path("/usr/share"),)), "ls -A /usr/share; touch /usr/share/x"
    )
    assert done.content.splitlines()[1].startswith("touch: cannot touch")


@needs_sandbox
@pytest.mark.parametrize("there", [True, False])
async def test_memory_and_skills_cannot_be_changed(desk: Desk, there: bool) -> None:
    if there:
        for name in ("memory", "skills"):
            (desk.folder / name).mkdir()
            (desk.folder / name / "x").write_text("kept")
    before = sorted(desk.folder.rglob("*"))
    for name in ("memory", "skills"):
        line = f"echo no > {name}/x; rm -rf {name}; mv {name} y; mkdir {name}; ln -s /etc {name}/z"
        assert not (await desk.run(with_sandbox(), line)).details["changes"]
    assert sorted(desk.folder.rglob("*")) == before


@needs_sandbox
async def test_a_link_in_the_place_of_memory_opens_nothing(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("CANARY")
    (desk.folder / "memory").symlink_to(tmp_path / "outside")
    refused = await desk.run(with_sandbox(), "cat memory/secret")
    assert "CANARY" not in refused.content
    assert "cannot be protected" in refused.content


async def test_no_child_gets_a_key_of_ours(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PILOTHOUSE_LLM_API_KEY", "SECRET_KEY", "DATABASE_URL", "HTTPS_PROXY", "HOME"):
        monkeypatch.setenv(name, "CANARY")
    line = "tr '\\0' '\\n' < /proc/$$/environ; env" if LINUX else "env"
    for shell in (without_sandbox(), *([with_sandbox()] if bubblewrap() else [])):
        done = await desk.run(shell, line)
        assert "PATH=" in done.content
        assert "CANARY" not in done.content
    assert environment({"LANG": "de_DE.UTF-8", "SECRET": "x"}, A="1") == {
        "PATH": os.defpath, "LANG": "de_DE.UTF-8", "A": "1",
    }  # fmt: skip


async def test_a_line_is_read_in_the_character_set_in_which_it_was_judged(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In GBK the backslash of `语\\;x` belongs to a letter, and `x` is a command."""
    for name in ("LANG", "LC_ALL", "LC_CTYPE"):
        monkeypatch.setenv(name, "zh_CN.gbk")
    for shell in (without_sandbox(), *([with_sandbox()] if bubblewrap() else [])):
        done = await desk.run(shell, 'echo "$LANG $LC_ALL $LC_CTYPE"; unset LC_ALL; locale charmap')
        assert "gbk" not in done.content
        assert "\nUTF-8" in done.content or not LINUX


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


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
        while not (desk.folder / "started").exists():  # noqa: ASYNC110  a file rings no event
            await asyncio.sleep(0.01)
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
        while not (desk.folder / "started").exists():  # noqa: ASYNC110  a file rings no event
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await last_is_gone()


@contextmanager
def lifeline(desk: Desk) -> Iterator[Callable[[], Awaitable[None]]]:
    """A pipe called `life`: it ends when the last process that inherited it has ended."""
    os.mkfifo(desk.folder / "life")
    end = os.open(desk.folder / "life", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(end, True)

    async def last_is_gone() -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(end, ended.set)
        try:
            async with asyncio.timeout(SHORT):
                await ended.wait()
        finally:
            asyncio.get_running_loop().remove_reader(end)
        assert os.read(end, 1) == b""

    try:
        yield last_is_gone
    finally:
        os.close(end)


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
    marker = f"m{uuid4().hex}"
    line = f"touch started; (sleep 0.2; touch late; : {marker}) & sleep 300; : {marker}"
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, str(desk.folder), mode, line
    )
    while not (desk.folder / "started").exists():  # noqa: ASYNC110  a file rings no event
        await asyncio.sleep(0.01)
    assert len(processes(marker)) > 1, "the server and its command"
    server.kill()
    await server.wait()
    for _ in range(100):
        if not processes(marker):
            break
        await asyncio.sleep(0.05)
    assert processes(marker) == []
    assert not (desk.folder / "late").exists()


def processes(marker: str) -> list[str]:
    """Command lines that have the marker in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return [line for line in found if marker in line]


async def test_one_command_at_a_time_in_a_workspace(desk: Desk) -> None:
    line = "echo begin >> log; sleep 0.1; echo end >> log"
    await asyncio.gather(*(desk.run(without_sandbox(), line) for _ in range(3)))
    assert (desk.folder / "log").read_text() == "begin\nend\n" * 3


# ── output and files of every kind ───────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain\n", "plain\n"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\x1b(B", "red x"),
        (b"10%\r20%\r100%\r\nnext\r\n", "100%\nnext\n"),
        (b"a\0b\x07\x08\xff\xfe", "a\ufffdb" + "\ufffd" * 4),
        ("语言 ü".encode(), "语言 ü"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1b", "\ufffd"),
        (b"\x1b[" + b"9" * 50_000, "9" * 50_000),
    ],
)
def test_output_is_what_a_terminal_would_show(data: bytes, text: str) -> None:
    assert readable(data).removeprefix("\ufffd[") == text.removeprefix("\ufffd[")


def test_output_keeps_both_ends_however_it_comes() -> None:
    whole = "".join(f"line {number}\n" for number in range(20_000)).encode()
    texts = set()
    for size in (1, 4096, len(whole)):
        output = Output()
        for start in range(0, len(whole), size):
            output.add(whole[start : start + size])
        texts.add(output.text())
        assert output.last_line() == "line 19999"
    (text,) = texts
    assert text.startswith("line 0\n")
    assert text.endswith("line 19999")
    assert f"{len(whole):,} bytes in all" in text


async def test_names_of_every_kind_are_reported_and_cannot_lie(desk: Desk) -> None:
    line = (
        "printf x > $'new\\n  deleted a.txt'; printf x > $'\\xff'; printf x > $'\\u202egnp'; "
        "ln -s /etc/passwd link; mkfifo pipe; printf '\\0\\1' > bin; printf y > '日本 語'"
    )
    done = await desk.run(without_sandbox(), line)
    assert done.ok, done.content
    assert "\n  deleted a.txt" not in done.content
    for said in ("created '\\u202egnp'", "created link", "created pipe", "created bin", "日本 語"):
        assert said in done.content
    assert sorted(done.details["artifacts"]) == ["bin", "日本 語"]


async def test_many_changes_fit(desk: Desk) -> None:
    done = await desk.run(without_sandbox(), f"touch {'x' * 200}{{1..300}}; seq 1 90000 > a.txt")
    assert done.details["changed"] == 301
    assert "and 201 more\n" in done.content
    assert len(str(done.details)) < MAX_DETAILS
    assert done.details["changes"]
    assert done.details["diff"]


def test_an_incomplete_look_makes_no_changes_up(desk: Desk) -> None:
    workspace = Workspace(desk.folder)
    for number in range(30):
        (desk.folder / f"f{number}").touch()
    time.sleep(2 * CLOCK_STEP / 1e9)
    for limits in ((10, 20), (20, 10), (40, 10), (10, 40)):
        before, after = (take(workspace, max_files=limit) for limit in limits)
        assert changes(before, after) == [], limits
    before = take(workspace, max_files=10)
    (desk.folder / "new").write_text("x")
    (seen,) = changes(before, take(workspace))
    assert (seen.path, seen.kind) == ("new", "created")


async def test_a_file_written_anew_with_the_same_content_did_not_change(desk: Desk) -> None:
    done = await desk.run(without_sandbox(), "cp a.txt b; mv b a.txt")
    assert done.details["changes"] == []
    back = await desk.run(
        without_sandbox(), "touch -r a.txt stamp; echo two > a.txt; touch -r stamp a.txt; rm stamp"
    )
    assert [each["path"] for each in back.details["changes"]] == ["a.txt"]


async def test_a_rule_that_counts_its_uses_is_counted_wherever_it_stands_in_a_line(
    tmp_path: Path,
) -> None:
    """Nor does a line in which a free rule comes first pass for ever."""
    left = {"git": 2, "wc": 1}

    async def claim(rule_id: str) -> bool:
        left[rule_id] -= 1
        return left[rule_id] >= 0

    free = Rule(id="ls", decision="allow", command="ls **")
    counted = [Rule(id=name, decision="allow", command=name, limited=True) for name in left]
    judge = Judge(
        policy=Policy(rules=[free, *counted]),
        toolbox=Toolbox([with_sandbox().tool()]),
        workspace=Workspace(tmp_path),
        claim=claim,
    )

    async def settled(line: str) -> str:
        return (await judge.settle("run_command", {"command": line})).decision

    lines = ("ls; git; git", "ls", "ls && wc | git", "ls; git", "ls")
    assert [await settled(line) for line in lines] == ["allow", "allow", "allow", "ask", "allow"]
    assert await settled("ls; wc") == "ask"
