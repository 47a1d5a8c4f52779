"""run_command: what a command may reach, in the sandbox and without."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from agent import syscalls
from agent.children import environment
from agent.sandbox import TMP_BYTES, Sandbox, bubblewrap
from tests.support.needs import needs_sandbox
from tests.support.shell import LINUX, Desk, with_sandbox, without_sandbox

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


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
