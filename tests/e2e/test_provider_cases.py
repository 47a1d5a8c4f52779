"""Whole runs against what real model servers send: the strict stub plays, the product copes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.e2e import CANARY, Desk, Follower, House, Person, opened

pytestmark = pytest.mark.e2e


class Played:
    """A case that was run to its end, approving what is asked."""

    def __init__(self, desk: Desk, client: Follower, task: dict[str, str]) -> None:
        self.desk, self.client, self.id = desk, client, task["id"]

    def payloads(self, type_: str) -> list[dict[str, object]]:
        return [event.payload for event in self.client.reader.stored if event.type == type_]

    @property
    def results(self) -> list[str]:
        return [str(payload["content"]) for payload in self.payloads("tool_call_finished")]

    @property
    def text(self) -> str:
        return "".join(str(payload["text"]) for payload in self.payloads("assistant_message"))


async def play(house: House, alice: Person, case: str, status: str = "completed") -> Played:
    desk = house.desk()
    task = await alice.ask(desk, f"[{case}] Do it")
    async with alice.follow(task["id"]) as client:
        await client.end(status)
    await house.check(alice, task["id"], client)
    return Played(desk, client, task)


async def test_a01_two_calls_without_an_index(house: House, alice: Person) -> None:
    played = await play(house, alice, "A01")
    assert [call["arguments"] for call in played.payloads("tool_call_requested")] == [
        {"path": "a.txt"},
        {"path": "b.txt"},
    ]
    assert sorted(played.results) == ["AAA", "BBB"]


async def test_a12_no_arguments_are_an_empty_object(house: House, alice: Person) -> None:
    played = await play(house, alice, "A12")
    assert [call["arguments"] for call in played.payloads("tool_call_requested")] == [{}, {}]
    assert all("a.txt" in result for result in played.results)
    assert house.model.run("A12").refusals == []


async def test_a17_a_write_that_was_cut_is_not_carried_out(house: House, alice: Person) -> None:
    played = await play(house, alice, "A17")
    assert played.payloads("approval_required") == []
    assert played.payloads("tool_call_started") == []
    assert list(played.desk.folder.glob("report*")) == []
    assert house.model.run("A17").refusals == []


async def test_a20_a_reset_in_the_arguments_is_asked_again(house: House, alice: Person) -> None:
    played = await play(house, alice, "A20")
    assert len(house.model.run("A20").bodies) == 2
    assert len(played.payloads("model_call_retried")) == 1
    assert played.payloads("tool_call_requested") == []
    assert len(played.payloads("assistant_message")) == 1, "no half answer as a second bubble"


async def test_a22_a_finish_reason_is_an_end(house: House, alice: Person) -> None:
    await play(house, alice, "A22")
    assert len(house.model.run("A22").bodies) == 1


async def test_a35_characters_that_were_split_arrive_whole(house: House, alice: Person) -> None:
    played = await play(house, alice, "A35")
    log = str([event.data for event in played.client.reader.stored])
    assert "\ufffd" not in log
    assert not played.text.isascii()


async def test_a43_retry_after_is_honoured(house: House, alice: Person) -> None:
    played = await play(house, alice, "A43")
    assert house.model.run("A43").refusals == [], "not asked again too early"
    (retried,) = played.payloads("model_call_retried")
    assert float(str(retried["delay_seconds"])) >= 2


async def test_a45_the_key_is_nowhere(house: House, alice: Person) -> None:
    played = await play(house, alice, "A45", "failed")
    assert len(house.model.run("A45").bodies) == 1, "a 401 is not tried again"
    key = CANARY.encode()
    assert b"CANARY" not in repr(played.client.reader).encode()
    assert b"CANARY" not in (await alice.http.get(f"/api/tasks/{played.id}")).content
    assert b"CANARY" not in (await alice.http.get(f"/api/tasks/{played.id}/events")).content
    with opened(house.state) as database:
        dump = "\n".join(database.iterdump())
    assert played.id.replace("-", "") in dump
    assert "CANARY" not in dump
    holding = [
        path
        for path in house.state.rglob("*")
        if path.is_file() and (b"CANARY" in (data := path.read_bytes()) or key[-9:] in data)
    ]
    assert holding == [], "database, journal, logs and workspaces"
    export = await alice.http.get(f"/api/tasks/{played.id}/export")
    with ZipFile(BytesIO(export.content)) as archive:
        assert b"CANARY" not in b"".join(archive.read(name) for name in archive.namelist())
    assert key not in command_line(house.server.pid)


def command_line(pid: int) -> bytes:
    """What everybody on the machine sees of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_a54_a_refused_field_is_left_out_at_once(house: House, alice: Person) -> None:
    await play(house, alice, "A54")
    bodies = house.model.run("A54").bodies
    assert len(bodies) <= 2
    assert "stream_options" not in bodies[-1]


async def test_a55_ids_that_come_twice_are_two_calls(house: House, alice: Person) -> None:
    played = await play(house, alice, "A55")
    assert played.results == ["AAA", "BBB"]
    assert len({str(call["tool_call_id"]) for call in played.payloads("tool_call_started")}) == 2
    assert house.model.run("A55").refusals == []


async def test_a58_content_is_never_null_twice(house: House, alice: Person) -> None:
    await play(house, alice, "A58")
    assert len(house.model.run("A58").refusals) <= 1


async def test_a60_one_system_message_in_follow_ups_too(house: House, alice: Person) -> None:
    played = await play(house, alice, "A60")
    more = await alice.ask(None, "[A60] And now?", follow_up_of=played.id)
    await alice.until(more["id"], "completed")
    run = house.model.run("A60")
    assert run.refusals == []
    assert [message["role"] for message in run.bodies[-1]["messages"]] == [
        *("system", "user", "assistant", "user")
    ]
