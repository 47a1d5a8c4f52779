"""What comes between a call of an MCP server and its answer: asides of the server, other calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.mcp import declared, desk, entry
from tests.support.mcp_http import HttpServer


async def test_a_ping_right_behind_progress_is_answered_and_both_are_heard(tmp_path: Path) -> None:
    servers = declared(busy=entry("aside", sandbox=False, seconds=20))
    async with desk(tmp_path, servers) as one:
        await one.accept()
        result = await one.call("busy_echo", q="1")
    assert json.loads(result.content) == {"jsonrpc": "2.0", "id": "alive", "result": {}}
    assert one.shown[0] == "looking"


async def test_what_one_call_is_refused_with_is_not_said_of_another(tmp_path: Path) -> None:
    tools = {"echo": {"capability": "test:read"}}
    with HttpServer() as server:
        servers = declared(near={"url": server.url, "tools": tools, "private": True})
        async with desk(tmp_path, servers) as one:
            await one.accept()
            server.mode = "apart"
            slow = asyncio.create_task(one.call("near_echo", q="slow"))
            await asyncio.to_thread(server.called.wait, 10)
            refused = await one.call("near_echo", q="other")
            server.released.set()
            answered = await slow
    assert refused.content.endswith("answered with an error: No such tool (HTTP 404)")
    assert answered.content.endswith("answered with an error: No tea")  # it was asked once
    assert server.sessions == 1
    assert not any("Pilothouse-Call" in headers for headers in server.seen)
