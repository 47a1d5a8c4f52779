"""The server killed with `kill -9` while work is under way that came by other doors than the chat: a
run of AG-UI, a webhook's delivery, an effect of an MCP server, an upload.

Nothing is repeated blindly, nothing is half there, and whoever asked goes on where they were.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_agui import at, read
from tests.support.agui import run_input
from tests.support.daphne import manage
from tests.support.e2e import Desk, Furnished, House, Person
from tests.support.e2e_model import Call, Hold, Model, words
from tests.support.mcp import entry
from tests.support.waiting import happened

pytestmark = pytest.mark.e2e

HALF = 100_000
SET_UP = """
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from tasks import servers, toolboxes, webhooks
from tasks.conf import conf
from tasks.models import McpTool, Webhook, Workspace
async_to_sync(toolboxes.look)(conf().mcp_servers["ledger"])
row = McpTool.objects.get(name="write")
servers.accept(row, servers.Definition(text=row.seen).digest, by="alice")
alice, desk = User.objects.get(username="alice"), Workspace.objects.get(pk="DESK")
webhook = Webhook.objects.create(name="w", goal="[delivered] Read it", owner=alice, workspace=desk)
print(webhook.pk, webhooks.renew_secret(webhook, "alice"))
"""


@pytest.fixture
def house(tmp_path: Path, furnished: Furnished, model: Model) -> Iterator[House]:
    settings = tmp_path / "servers.json"
    tools = {"write": {"capability": "ledger:write", "paths": ["path"]}}
    settings.write_text(json.dumps({"ledger": entry("held", sandbox=False, tools=tools)}))
    env = {"PILOTHOUSE_MCP_SERVERS": str(settings), "PILOTHOUSE_UNATTENDED_MODE": "ask"}
    house = House(tmp_path / "state", furnished, model, env=env)
    with house.server:
        yield house
        house.verify_log()
        assert "Traceback" not in house.server.log


class Hook:
    """Another program, that sends the same delivery until it is answered."""

    def __init__(self, house: House, desk: Desk) -> None:
        code = SET_UP.replace("DESK", desk.id)
        output = manage(house.state, "shell", "-v0", "-c", code, env=house.server.env)
        self._id, self._secret = output.split()[-2:]

    async def send(self, person: Person) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._secret}", "Webhook-Id": "msg_1"}
        answer = await person.http.post(
            f"/api/webhooks/{self._id}", content=b'{"number": 7}', headers=headers
        )
        assert answer.status_code in (200, 202), answer.text
        found: dict[str, Any] = answer.json()
        return found


def half_an_upload(person: Person, desk: Desk) -> socket.socket:
    """The server has the head and half of the body."""
    url = person.http.base_url
    line = socket.create_connection((url.host, url.port))
    token = person.http.headers["Authorization"]
    head = (
        f"PUT {content(desk)} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: {token}\r\n"
        f"Content-Type: application/octet-stream\r\nContent-Length: {2 * HALF}\r\n\r\n"
    )
    line.sendall(head.encode() + b"x" * HALF)
    return line


def content(desk: Desk) -> str:
    return f"/api/workspaces/{desk.id}/files/content?path=upload.bin"


async def test_kill_9_with_work_from_every_other_door(
    house: House, alice: Person, model: Model
) -> None:
    desk, speaking, reading = house.desk(), Hold(), Hold()
    hook = await asyncio.to_thread(Hook, house, desk)
    patched = await alice.http.patch(f"/api/workspaces/{desk.id}", json={"mcp_servers": ["ledger"]})
    assert patched.status_code == 200, patched.text
    model.script("spoken", [*words(5), speaking, "end"])
    model.script("delivered", [Call("read_file", path="a.txt")], ["It is ", reading, "AAA."])
    model.script(
        "entered", [Call("mcp_ledger_write", path="ledger.txt", content="1\n")], ["Entered."]
    )
    (desk.folder / "hold").touch()

    agui = run_input("thread", "one", "[spoken] Tell", **at(desk))
    left = await read(alice, agui, lambda rules: "w4" in "".join(rules.texts.values()))
    spoken = left.events[0]["metadata"]["pilothouse"]["task_id"]
    delivered = (await hook.send(alice))["id"]
    await happened(reading.reached.is_set)
    entered = (await alice.ask(desk, "[entered] Enter it"))["id"]
    await alice.until(entered, "waiting_approval")
    (card,) = await alice.pending(entered)
    await alice.approve(card["id"])
    await happened(lambda: desk.text("ledger.txt"))
    upload = half_an_upload(alice, desk)

    house.server.kill9()
    upload.close()
    for hold in (speaking, reading):
        hold.release()
    await house.restart()

    assert (await hook.send(alice))["id"] == delivered, "the same delivery is the same task"
    await alice.until(delivered, "completed")
    again = await read(alice, agui)
    assert again.events[-1]["result"] == "".join(f"w{number} " for number in range(5)) + "end"
    model.script("more", ["And more."])
    after = await read(alice, run_input("thread", "two", "[more] Go on", **at(desk)))
    assert after.events[-1]["result"] == "And more."

    await alice.until(entered, "waiting_approval")
    (card,) = await alice.pending(entered)
    assert card["kind"] == "unknown_effect"
    assert desk.text("ledger.txt") == "1\n", "not repeated blindly"
    (desk.folder / "hold").unlink()
    await alice.approve(card["id"], answer="done")
    await alice.until(entered, "completed")
    assert desk.text("ledger.txt") == "1\n"

    assert desk.text("upload.bin") is None
    sent = await alice.http.put(content(desk), content=b"x" * HALF)
    assert sent.status_code == 201, sent.text
    assert sorted(file.name for file in desk.folder.iterdir() if not file.is_dir()) == [
        *("a.txt", "b.txt", "ledger.txt", "upload.bin"),
    ]
    for task in (spoken, delivered, entered):
        log = await house.check(alice, task)
        assert [event["type"] for event in log].count("task_recovered") == 1
    assert house.refusals() == []
