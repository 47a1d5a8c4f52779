"""Shell commands under a real server that is killed, drained or told to stop while one runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.e2e import Desk, Follower, Furnished, House, Person
from tests.support.e2e_model import Call, Model, words
from tests.support.needs import needs_sandbox
from tests.support.waiting import happened

pytestmark = [
    pytest.mark.e2e,
    needs_sandbox,
]


@pytest.fixture(scope="module")
def fragile(
    tmp_path_factory: pytest.TempPathFactory, furnished: Furnished, model: Model
) -> Iterator[House]:
    env = {"PILOTHOUSE_ENABLE_SHELL": "1", "PILOTHOUSE_DRAIN_SECONDS": "0.5"}
    house = House(tmp_path_factory.mktemp("shell"), furnished, model, env=env)
    with house.server:
        yield house
        house.verify_log()
        assert "Traceback" not in house.server.log


def processes(marker: str) -> list[str]:
    """Command lines that have the marker in them."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if marker.encode() in line:
            found.append(line.replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize("how", ["kill", "drain"])
async def test_no_command_outlives_its_server(fragile: House, how: str) -> None:
    marker = f"m{uuid4().hex}"
    line = f"echo agent > a.txt; touch started; (sleep 900; : {marker}) & sleep 901; : {marker}"
    fragile.model.script(marker, [Call("run_command", command=line)], words(3))
    desk = fragile.desk()
    async with AsyncExitStack() as stack:
        alice: Person = await stack.enter_async_context(fragile.person("alice"))
        task = await alice.ask(desk, f"[{marker}] Run it")
        client = await stack.enter_async_context(alice.follow(task["id"]))
        asked = await client.seen("approval_required")
        assert asked.payload["diff"].startswith(f"── command\n{line}\n")
        await alice.approve(asked.payload["approval_id"])
        await happened((desk.folder / "started").exists)
        assert processes(marker)
        if how == "kill":
            fragile.server.kill9()
        else:
            fragile.server.terminate()
        await happened(lambda: not processes(marker))
        await fragile.restart()
        again = await client.seen("approval_required", 2)
        assert again.payload["kind"] == "unknown_effect"
        assert not processes(marker), "not repeated blindly"
        seen = again.payload["diff"].partition("── what it changed\n")[2]
        assert "changed a.txt, 6 bytes" in seen
        assert (await alice.resolve(again.payload["approval_id"], "reject")).status_code == 202
        await client.end()
        await fragile.check(alice, task["id"], client)
        await undone(desk, alice, task["id"], client)


async def undone(desk: Desk, person: Person, task_id: str, client: Follower) -> None:
    """What the cut off command did is told, and a person takes it back."""
    finished = await client.seen("tool_call_finished")
    named = {each["path"] for each in finished.payload["details"]["changes"]}
    assert named == {"a.txt", "started"}
    assert desk.text("a.txt") == "agent\n"
    path = f"/api/tasks/{task_id}/events/{finished.sequence}/undo"
    seen = (await person.http.get(path)).json()
    assert seen["state"] == "possible", seen
    answer = await person.http.post(path, json={"digest": seen["digest"]})
    assert answer.status_code == 200, answer.text
    assert desk.text("a.txt") == "AAA"
    assert desk.text("started") is None


async def test_cancelling_a_task_kills_its_command(fragile: House) -> None:
    marker = f"m{uuid4().hex}"
    fragile.model.script(
        marker,
        [Call("run_command", command=f"echo agent > a.txt; touch started; sleep 900; : {marker}")],
    )
    desk = fragile.desk()
    async with fragile.person("alice") as alice:
        task = await alice.ask(desk, f"[{marker}] Run it")
        async with alice.follow(task["id"]) as client:
            await alice.approve(await client.approval())
            await happened((desk.folder / "started").exists)
            await alice.cancel(task["id"])
            await client.end("cancelled")
        await happened(lambda: not processes(marker))
        await fragile.check(alice, task["id"], client)
        await undone(desk, alice, task["id"], client)


async def test_nothing_is_undone_under_a_task_that_runs(fragile: House) -> None:
    marker = f"m{uuid4().hex}"
    write = Call("write_file", path="a.txt", content="agent")
    command = Call("run_command", command=f"touch started; sleep 900; : {marker}")
    fragile.model.script(marker, [write], [command])
    desk = fragile.desk()
    async with fragile.person("alice") as alice:
        task = await alice.ask(desk, f"[{marker}] Write, then run it")
        async with alice.follow(task["id"]) as client:
            await alice.approve(await client.approval())
            asked = await client.seen("approval_required", 2)
            written = await client.seen("tool_call_finished")
            path = f"/api/tasks/{task['id']}/events/{written.sequence}/undo"
            seen = (await alice.http.get(path)).json()
            assert seen["state"] == "possible"
            await alice.approve(asked.payload["approval_id"])
            await happened((desk.folder / "started").exists)
            refused = await alice.http.post(path, json={"digest": seen["digest"]})
            assert refused.status_code == 409, refused.text
            assert refused.json()["error"]["code"] in ("busy", "task_running")
            assert desk.text("a.txt") == "agent"
            await alice.cancel(task["id"])
            await client.end("cancelled")
            done = await alice.http.post(path, json={"digest": seen["digest"]})
            assert done.json()["state"] == "undone"
    assert desk.text("a.txt") == "AAA"


async def test_what_a_command_made_is_recorded(fragile: House) -> None:
    fragile.model.script("made", [Call("run_command", command="wc -c a.txt > size.txt")], words(2))
    async with fragile.person("alice") as alice:
        task = await alice.ask(fragile.desk(), "[made] Count")
        async with alice.follow(task["id"]) as client:
            await alice.approve(await client.approval())
            await client.end()
            recorded = await client.seen("artifact_recorded")
        assert recorded.payload["path"] == "size.txt"
        artifact = await alice.http.get(f"/api/artifacts/{recorded.payload['artifact_id']}")
        assert artifact.text == "3 a.txt\n"
