"""What is asked for wrongly gets the documented refusal, and the server lives on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.daphne import ROOT, daphne_command, environment, free_port
from tests.support.e2e import House, Person
from tests.support.e2e_model import Call

pytestmark = pytest.mark.e2e

UNKNOWN = "00000000-0000-4000-8000-000000000000"
KIB = 1024
LONG = pytest.mark.long


async def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """In the one shape of all refusals."""
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"].startswith("application/json")
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code
    assert error["message"]
    return error


@pytest.mark.parametrize("bad", [UNKNOWN, "1", "no-id", "%00", "é", "x" * 2000])
async def test_unknown_ids_are_not_found(alice: Person, bad: str) -> None:
    for path in (f"tasks/{bad}", f"tasks/{bad}/events", f"tasks/{bad}/stream", f"approvals/{bad}"):
        await refused(await alice.http.get(f"/api/{path}"), 404, "not_found")
    for path in (f"tasks/{bad}/cancel", f"tasks/{bad}/retry"):
        await refused(await alice.http.post(f"/api/{path}", json={}), 404, "not_found")
    await refused(await alice.resolve(bad), 404, "not_found")
    for field in ("session_id", "workspace_id", "follow_up_of"):
        body = {"goal": "x", field: bad}
        await refused(await alice.http.post("/api/tasks", json=body), 404, "not_found")


@pytest.mark.parametrize("goal", ["", "   ", "\n\t", None, 5, ["x"], {"text": "x"}, True])
async def test_a_goal_is_words(alice: Person, goal: object) -> None:
    error = await refused(await alice.http.post("/api/tasks", json={"goal": goal}), 400, "invalid")
    assert "goal" in error["details"]


async def test_a_goal_is_not_a_book(alice: Person) -> None:
    for size in (64 * KIB + 1, KIB * KIB):
        answer = await alice.http.post("/api/tasks", json={"goal": "x" * size})
        await refused(answer, 413, "too_large")
    await refused(
        await alice.http.post("/api/tasks", content=b"x" * 3 * KIB * KIB), 413, "too_large"
    )
    streamed = await alice.http.post("/api/tasks", content=_pieces(3 * KIB))
    await refused(streamed, 413, "too_large")


async def _pieces(count: int) -> Any:
    for _ in range(count):
        yield b" " * KIB


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"goal"',
        b"{'goal': 'x'}",
        b'{"goal": "x"',
        b'{"goal": "x"} trailing',
        b'{"goal": NaN}',
        b"\xff\xfe",
        b'{"goal": "\xff"}',
        b"[" * 100_000,
        b'{"goal": ' * 50_000,
        b'{"goal": "x", "mode": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b'{"goal": "x", "extra": 1}',
        b'{"goal": "x", "mode": "free"}',
        b'{"goal": "x", "when_busy": "maybe"}',
        b'{"goal": "x", "when_busy": null}',
    ],
    ids=lambda body: body[:24].decode("latin-1").replace("\xff", "?"),
)
async def test_a_body_is_a_task(alice: Person, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await alice.http.post("/api/tasks", content=body, headers=headers)
    await refused(answer, 400, "invalid")


async def test_unstorable_characters_arrive_cleaned(house: House, alice: Person) -> None:
    """NUL and lone surrogates cannot be stored; pairs that JSON split are one character."""
    desk, name = house.desk(), house.model.script("clean", ["Fine."])
    goal = rf"[{name}] A\u0000B \ud800 C \ud83d\ude00 \u2028 D\udfff"
    body = f'{{"goal": "{goal}", "workspace_id": "{desk.id}"}}'
    answer = await alice.http.post("/api/tasks", content=body.encode())
    assert answer.status_code == 202
    task = await alice.until(answer.json()["id"], "completed")
    cleaned = f"[{name}] A\ufffdB \ufffd C 😀 \u2028 D\ufffd"
    assert task["goal"] == cleaned
    log = await house.check(alice, task["id"])
    assert log[0]["payload"]["goal"] == cleaned
    assert house.model.run(name).bodies[0]["messages"][-1]["content"] == cleaned


@pytest.mark.parametrize("cursor", ["abc", "-1", "1.5", "0x1", "", "1 2"])
async def test_a_cursor_is_a_number(house: House, alice: Person, cursor: str) -> None:
    task = await _done(house, alice)
    if cursor:
        headers = {"Last-Event-ID": cursor}
        answer = await alice.http.get(f"/api/tasks/{task}/stream", headers=headers)
        await refused(answer, 400, "invalid_cursor")
    params = {"after": cursor or "nothing"}
    answer = await alice.http.get(f"/api/tasks/{task}/events", params=params)
    await refused(answer, 400, "invalid")
    for limit in ("0", "1001", "x", "-5"):
        answer = await alice.http.get(f"/api/tasks/{task}/events", params={"limit": limit})
        await refused(answer, 400, "invalid")


async def _done(house: House, alice: Person) -> str:
    found = (await alice.get("/api/tasks?status=completed&limit=1"))["items"]
    if found:
        return str(found[0]["id"])
    task = await alice.ask(house.desk(), f"[{house.model.script('done', ['Done.'])}] Say it")
    return str((await alice.until(task["id"], "completed"))["id"])


async def test_an_answer_is_given_once(house: House, alice: Person, bob: Person) -> None:
    desk = house.desk()
    task = await alice.ask(desk, "[C01/bad] Write it")
    await alice.until(task["id"], "waiting_approval")
    (card,) = await alice.pending(task["id"])
    for body in (
        {},
        {"decision": "yes"},
        {"decision": "approve", "scope": "everywhere"},
        {"decision": "approve", "answer": "done"},
        {"decision": "reject", "edited_arguments": card["arguments"]},
        {"decision": "approve", "comment": 5},
        {"decision": "approve", "extra": 1},
    ):
        answer = await alice.http.post(f"/api/approvals/{card['id']}/resolve", json=body)
        await refused(answer, 400, "invalid")
    assert len(await alice.pending(task["id"])) == 1
    assert (await alice.resolve(card["id"], "reject", comment="No")).status_code == 202
    assert (await alice.resolve(card["id"], "reject", comment="No")).status_code == 202
    await refused(await alice.resolve(card["id"], "reject"), 409, "already_resolved")
    await refused(await alice.resolve(card["id"], "approve"), 409, "already_resolved")
    await refused(await bob.resolve(card["id"], "reject", comment="No"), 409, "already_resolved")
    await alice.until(task["id"], "completed")
    assert desk.text("out.txt") is None


async def test_a_path_outside_is_a_result_that_says_so(house: House, alice: Person) -> None:
    desk = house.desk()
    (desk.folder / "way").symlink_to("/etc")
    outside = ("../desk000/a.txt", "/etc/passwd", "way/passwd", "..\\a.txt", "~/x", "C:\\x")
    reads = [Call("read_file", path=path) for path in outside]
    writes = [Call("write_file", path=path, content="x") for path in outside]
    name = house.model.script("outside", reads, writes, ["I may not."])
    task = await alice.ask(desk, f"[{name}] Look around")
    async with alice.follow(task["id"]) as client:
        await client.end()
    log = await house.check(alice, task["id"], client)
    results = [e["payload"] for e in log if e["type"] == "tool_call_finished"]
    assert len(results) == 2 * len(outside)
    for result in results:
        assert result["ok"] is False
        assert "root:" not in result["content"]
        assert str(desk.folder.parent) not in result["content"]
    assert "approval_required" not in client.types


# ── at the start and on the command line ──────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PILOTHOUSE_MAX_AGENT_STEP", "5"),
        ("PILOTHOUSE_MAX_AGENT_STEPS", "five"),
        pytest.param("PILOTHOUSE_MODE", "free", marks=LONG),
        ("DATABASE_URL", "mysql://somewhere/db"),
        pytest.param("PILOTHOUSE_LLM_BASE_URL", "localhost:11434", marks=LONG),
        pytest.param("REDIS_URL", "redis://127.0.0.1", marks=LONG),
        pytest.param("PILOTHOUSE_SSE_HEARTBEAT_SECONDS", "0", marks=LONG),
    ],
)
async def test_a_wrong_setting_stops_the_start_in_one_sentence(
    tmp_path: Path, name: str, value: str
) -> None:
    command = [part.format(port=free_port()) for part in daphne_command("config.asgi:application")]
    done = await asyncio.to_thread(_run, command, tmp_path, {name: value})
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pilothouse: {name}: ")
    assert line.endswith((".", "?"))


@pytest.mark.parametrize(
    "root",
    [
        "a file",
        "nested",
        *(pytest.param(each, marks=LONG) for each in ("missing", "around", "state")),
    ],
)
async def test_a_workspace_is_a_folder_of_its_own(house: House, root: str) -> None:
    desk = house.desk()
    (desk.folder / "inside").mkdir()
    place = {
        "missing": desk.folder / "nowhere",
        "a file": desk.folder / "a.txt",
        "nested": desk.folder / "inside",
        "around": desk.folder.parent,
        "state": house.state / "var",
    }[root]
    words = ("run_task", "--user", "alice", "--workspace", str(place), "--goal", "x", "--json")
    command = [sys.executable, "manage.py", *words]
    done = await asyncio.to_thread(_run, command, house.state, {})
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert str(place) in done.stderr


def _run(command: list[str], state: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(state, env),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
