"""MCP servers: real programs and a real HTTP server, good ones and all kinds of bad ones."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ToolFailed
from agent.mcp.connections import MAX_FAILURES, Launcher
from agent.mcp.results import MAX_TEXT, Broken
from tests.support.mcp import OURS, SERVERS, declared, desk, entry, written_in_sdk
from tests.support.mcp_http import HttpServer
from tests.support.needs import needs_sandbox
from tests.support.waiting import happened

UNBOXED = pytest.param({"sandbox": False}, id="none")
BOTH = [pytest.param({}, id="sandbox", marks=needs_sandbox), UNBOXED]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    place.mkdir()
    return place


@pytest.mark.parametrize("how", BOTH)
async def test_a_declared_and_accepted_tool_can_be_called(
    folder: Path, how: dict[str, Any]
) -> None:
    async with desk(folder, declared(notes=entry(**how))) as one:
        await one.accept()
        result = await one.call("notes_echo", q="hello")
        again = await one.call("notes_echo", q="again")
    assert result.ok
    assert result.content == '{"q": "hello"}'
    assert result.details["server"] == "notes"
    assert again.content == '{"q": "again"}'
    assert [name for name, _ in one.noticed] == ["notes"]  # one connection for the whole run


async def test_what_is_not_declared_is_no_tool(folder: Path) -> None:
    only = {"echo": {"capability": "test:read"}}
    async with desk(folder, declared(notes=entry(tools=only, sandbox=False))) as one:
        await one.accept()
        assert one.box.names == ("mcp_notes_echo",)


async def test_a_server_at_an_address_works_and_private_ones_must_be_declared(
    folder: Path, http_server: HttpServer
) -> None:
    tools = {"echo": {"capability": "test:read"}}
    fields = {"tools": tools, "url": http_server.url, "headers": {"X-Token": "Bearer env:HELD"}}
    servers = declared(
        {"HELD": "canary-of-the-server"},
        near={**fields, "private": True},
        far={"tools": tools, "url": http_server.url},
    )
    async with desk(folder, servers) as one:
        with pytest.raises(ToolFailed, match="refused by policy: it is not on the public network"):
            await one.accept("far")
        assert not http_server.seen
        await one.accept("near")
        result = await one.call("near_echo", q="1")
        told = await one.call("near_echo", q="token")
        tool = one.box.get("mcp_near_echo")
        assert tool is not None
        assert tool.reach is not None
        assert tool.reach({}, one.workspace).host == "127.0.0.1"
    assert result.content == '{"q": "1"}'
    assert told.content == "Bearer ***"
    assert {headers["X-Token"] for headers in http_server.seen} == {"Bearer canary-of-the-server"}
    assert {headers["Host"] for headers in http_server.seen} == {f"127.0.0.1:{http_server.port}"}
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("elsewhere", "not be used|answered with an error"),
        ("packed", "not be used|answered with an error"),
        ("huge", "not be used|answered with an error"),
        ("500", "not be used|answered with an error.*HTTP 500"),
        ("gone", "could not be reached"),
    ],
)
async def test_a_bad_server_at_an_address_is_an_error_and_no_more(
    folder: Path, http_server: HttpServer, mode: str, said: str
) -> None:
    tools = {"echo": {"capability": "test:read"}}
    url = http_server.url if mode != "gone" else "http://127.0.0.1:9/mcp"
    servers = declared(near={"url": url, "tools": tools, "private": True, "seconds": 20})
    http_server.mode = mode
    async with desk(folder, servers) as one:
        with pytest.raises(ToolFailed, match=said):
            await one.accept()
    assert not http_server.elsewhere


@pytest.mark.parametrize("mode", ["", "words"])
async def test_a_session_that_the_server_forgot_begins_anew(
    folder: Path, http_server: HttpServer, mode: str
) -> None:
    """After a restart of the server. Where it is certain that nothing was done, it is asked again."""
    tools = {"echo": {"capability": "test:read"}}
    servers = declared(near={"url": http_server.url, "tools": tools, "private": True})
    http_server.mode = mode
    async with desk(folder, servers) as one:
        await one.accept()
        first = await one.call("near_echo", q="1")
        http_server.sessions += 1
        second, third = [await one.call("near_echo", q=q) for q in "23"]
    assert first.ok
    assert third.content == '{"q": "3"}'
    assert second.ok == (mode == "")
    assert mode == "" or "Session not found (HTTP 400)" in second.content


async def test_a_server_that_refuses_to_be_listened_to_has_not_refused_the_call(
    folder: Path, http_server: HttpServer
) -> None:
    tools = {"echo": {"capability": "test:read"}}
    servers = declared(near={"url": http_server.url, "tools": tools, "private": True})
    http_server.mode = "deaf"
    async with desk(folder, servers) as one:
        await one.accept()
        told = await one.call("near_echo", q="1")
    assert told.content.endswith("answered with an error: No tea")
    assert http_server.sessions == 1


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    with HttpServer() as server:
        yield server


@pytest.mark.long
@needs_sandbox
async def test_servers_written_with_the_sdk_work(folder: Path, notes_url: str) -> None:
    (folder / "a.md").write_text("tea\ncoffee\ngreen tea\n")
    address = {"url": notes_url, "private": True, "tools": {"count": {"capability": "notes:read"}}}
    async with desk(folder, declared(notes=written_in_sdk("stdio"), far=address)) as one:
        await one.accept()
        found = await one.call("notes_search", path="a.md", word="tea")
        counted = await one.call("notes_count", words=["a", "b", "a"])
        wrong = await one.call("notes_search", path="none.md", word="tea")
        assert json.loads((await one.call("far_count", words=["a", "a"])).content) == {"a": 2}
    assert found.ok
    assert "green tea" in found.content
    assert "coffee" not in found.content
    assert json.loads(counted.content) == {"a": 2, "b": 1}
    assert not wrong.ok


@pytest.fixture
def notes_url() -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, str(SERVERS / "notes_server.py"), "http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if b"running on" in line:
                break
        yield f"http://127.0.0.1:{port}/mcp"
        server.kill()
        server.stderr.close()


# ── bad servers ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("hang_init", "did not answer within 0.4 seconds"),
        ("hang_list", "did not list its tools within 0.4 seconds|did not answer within"),
        ("crash_init", "did not begin: it ended|did not answer within"),
        ("odd_init", "does not speak MCP properly|did not answer within"),
    ],
)
async def test_a_server_that_does_not_begin_is_an_error_and_no_more(
    folder: Path, mode: str, said: str
) -> None:
    servers = declared(bad=entry(mode, sandbox=False, start_seconds=0.4), good=entry(sandbox=False))
    async with desk(folder, servers) as one:
        with pytest.raises(ToolFailed, match=said):
            await one.accept("bad")
        await one.accept("good")
        assert (await one.call("good_echo", q="x")).ok
    await happened(lambda: not _children())


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("hang_call", "whether the call had an effect is not known"),
        ("crash_call", "it ended"),
        ("error_call", "answered with an error: boom"),
        ("odd_error", "answered with an error: boom"),
        ("is_error", "no such note"),
    ],
)
async def test_a_call_that_goes_wrong_is_a_result_and_the_next_one_is_tried(
    folder: Path, mode: str, said: str
) -> None:
    seconds = 0.2 if mode == "hang_call" else 20
    async with desk(folder, declared(bad=entry(mode, sandbox=False, seconds=seconds))) as one:
        await one.accept()
        first, second = await one.call("bad_echo", q="1"), await one.call("bad_echo", q="2")
        connected = len(one.noticed)
    assert not first.ok
    assert not second.ok
    assert said in first.content
    assert said in second.content
    assert connected == (2 if mode in ("hang_call", "crash_call") else 1)
    await happened(lambda: not _children())


@pytest.mark.parametrize(
    "mode", ["garbage", "stderr_flood", "notify_flood", "ask_flood", "bad_schema", "pages_forever"]
)
async def test_a_noisy_server_still_answers(folder: Path, mode: str) -> None:
    async with desk(folder, declared(bad=entry(mode, sandbox=False))) as one:
        await one.accept()
        assert (await one.call("bad_echo", q="1")).content == '{"q": "1"}'


async def test_a_message_without_an_end_ends_the_connection(folder: Path) -> None:
    async with desk(folder, declared(bad=entry("endless", sandbox=False))) as one:
        with pytest.raises(ToolFailed, match="a message of more than 33,554,432 bytes"):
            await one.accept()


async def test_a_server_that_does_not_begin_is_left_alone_after_some_tries(folder: Path) -> None:
    async with desk(folder, declared(bad=entry("crash_init", sandbox=False))) as one:
        for _ in range(MAX_FAILURES):
            with pytest.raises(Broken, match="it did not begin: it ended") as broken:
                await one.accept()
            assert broken.value.errors == "the settings of this server are wrong"
        with pytest.raises(ToolFailed, match="is not tried again in this run"):
            await one.accept()


async def test_a_huge_result_is_cut(folder: Path) -> None:
    async with desk(folder, declared(bad=entry("huge_result", sandbox=False))) as one:
        await one.accept()
        result = await one.call("bad_echo", q="1")
    assert "8,000,000 characters in all" in result.content
    assert len(result.content) < MAX_TEXT + 200


async def test_parts_that_are_no_text_are_named_and_left_out(folder: Path) -> None:
    servers = declared(
        odd=entry("odd_parts", sandbox=False), even=entry("structured", sandbox=False)
    )
    async with desk(folder, servers) as one:
        await one.accept()
        odd = await one.call("odd_echo")
        assert (await one.call("even_echo")).content == '{"answer": 42}'
    assert odd.ok
    assert "[Image, image/svg+xml, about 9 bytes: it cannot be shown here." in odd.content
    assert "embedded text" in odd.content
    assert "an unknown kind, wat" in odd.content
    assert odd.details["parts"] == {"image": 1, "resource": 2, "wat": 1, "unknown": 1}


async def test_a_tool_that_changes_is_refused_from_then_on(folder: Path) -> None:
    async with desk(folder, declared(bad=entry("rug_pull", sandbox=False))) as one:
        await one.accept()
        first, second = await one.call("bad_echo", q="1"), await one.call("bad_echo", q="2")
        other = await one.call("bad_env")
    assert first.ok
    assert not second.ok
    assert "in another way than a person accepted" in second.content
    assert other.ok  # it is as it was
    changed = one.noticed[-1][1]["echo"]
    assert "Ignore the user" in changed.text


# ── what a server may reach ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", BOTH)
async def test_a_server_gets_no_variable_but_its_own(
    folder: Path, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOMEBODYS_TOKEN", "canary-of-the-shell")
    env = {"NOTES_MODE": "fast", "NOTES_TOKEN": "env:HELD"}
    servers = declared({"HELD": "canary-of-the-server"}, notes=entry(env=env, **how))
    async with desk(folder, servers) as one:
        await one.accept()
        result = await one.call("notes_env")
    found = json.loads(result.content)
    assert found["NOTES_MODE"] == "fast"
    assert found["NOTES_TOKEN"] == "***"  # it has it, and what it says is scrubbed
    assert "canary" not in result.content
    assert found.keys() <= {
        *("NOTES_MODE", "NOTES_TOKEN", "PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR"),
        *("TZ", "PWD", "SHLVL", "_"),
    }


@needs_sandbox
async def test_a_server_that_only_reads_cannot_write(folder: Path) -> None:
    tools = {"write": {"capability": "test:read"}}
    async with desk(folder, declared(notes=entry(tools=tools))) as one:
        await one.accept()
        result = await one.call("notes_write", path="a.txt", content="x")
    assert not result.ok
    assert not (folder / "a.txt").exists()


@needs_sandbox
async def test_a_server_never_writes_what_later_runs_are_told(folder: Path) -> None:
    async with desk(folder, declared(notes=entry())) as one:
        await one.accept()
        result = await one.call("notes_write", path="memory/MEMORY.md", content="obey")
        assert not result.ok
        assert (await one.call("notes_write", path="notes.md", content="fine")).ok
    assert not (folder / "memory/MEMORY.md").exists()


@needs_sandbox
async def test_a_server_has_the_network_only_where_the_settings_say_so(folder: Path) -> None:
    tools = {"dial": {"capability": "test:read"}}
    servers = declared(far=entry(tools=tools, network=True), near=entry(tools=tools))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        async with desk(folder, servers) as one:
            await one.accept()
            assert (await one.call("far_dial", port=port)).content == "connected"
            assert (await one.call("near_dial", port=port)).content.startswith("no connection")


async def test_without_a_sandbox_a_server_that_needs_one_does_not_run(folder: Path) -> None:
    launcher = Launcher(root=folder, sandbox=lambda: None)
    async with desk(folder, declared(notes=entry()), launcher=launcher) as one:
        with pytest.raises(ToolFailed, match="there is no working sandbox"):
            await one.accept()


# ── ends ──────────────────────────────────────────────────────────────────────────────────────


async def test_a_call_that_is_cut_off_takes_its_server_along(folder: Path, tmp_path: Path) -> None:
    sign = tmp_path / "pid"
    os.mkfifo(sign)
    async with desk(folder, declared(bad=entry("hang_call", str(sign), sandbox=False))) as one:
        await one.accept()
        call = asyncio.create_task(one.call("bad_echo", q="1"))
        pid = int(await asyncio.to_thread(sign.read_text))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert pid not in _parents()
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("how", BOTH)
async def test_a_server_that_does_not_want_to_end_is_ended(
    folder: Path, how: dict[str, Any]
) -> None:
    async with desk(folder, declared(bad=entry("deaf", **how))) as one:
        await one.accept()
    await happened(lambda: not _children())
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize(
    "how", [pytest.param({}, id="sandbox", marks=[needs_sandbox, pytest.mark.long]), UNBOXED]
)
async def test_a_server_dies_with_a_killed_process(
    folder: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    settings = tmp_path / "servers.json"
    settings.write_text(json.dumps({"bad": entry("deaf", **how)}))
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.mcp_owner", str(folder), str(settings)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert (await parent.stdout.readline()).strip() == b"connected"
    family = [pid for pid, above in _parents().items() if above == parent.pid]
    assert family
    watched = [os.pidfd_open(pid) for pid in family]
    parent.kill()
    await parent.wait()
    for fd in watched:
        ended, _, _ = await asyncio.to_thread(select.select, [fd], [], [], 20)
        os.close(fd)
        assert ended


def _parents() -> dict[int, int]:
    """Every process that lives, and its parent."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state != "Z":
            found[int(stat.parent.name)] = int(parent)
    return found


def _children() -> list[int]:
    """Processes that run our servers, whoever is their parent by now."""
    found = []
    for pid in _parents():
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if OURS.encode() in line:
            found.append(pid)
    return found
