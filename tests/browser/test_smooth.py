"""Ten thousand events: the page shows them all, draws what can be seen, and stays usable."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Route, expect

from tests.support.browser import Watched
from tests.support.e2e_model import Model

TURNS = 420
STEPS = 4


@pytest.mark.long
def test_ten_thousand_events(window: Watched, model: Model) -> None:
    model.script("long", ["Yes."])
    session = window.ask("[long] begin")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    log = list(history(session))
    assert len(log) > 10_000
    body = "retry: 2000\n\n" + "".join(map(frame, [connected(len(log)), *log]))
    page.route(re.compile(r"/stream\?"), lambda route: answer(route, body))
    page.route(
        re.compile(r"/events\?"),
        lambda route: route.fulfill(json=log_page(log, route.request.url)),
    )
    page.reload()
    expect(page.locator(".turn")).to_have_count(TURNS, timeout=60_000)
    expect(page.locator(".turn").last).to_contain_text(f"Answer {TURNS - 1}")
    # What is folded is not made before somebody opens it.
    assert page.evaluate("document.querySelectorAll('.turn *').length") < TURNS * 60
    page.locator("#say").fill("still here")
    expect(page.locator("#say")).to_have_value("still here")
    page.locator(".turn").first.locator(".fold summary").first.click()
    expect(page.locator(".fold__steps .tool")).to_have_count(STEPS)
    moved = page.evaluate(
        "() => new Promise(done => { scrollTo(0, 0);"
        " requestAnimationFrame(() => requestAnimationFrame(() => done(scrollY))); })"
    )
    assert moved == 0, "reading the beginning is not disturbed"


def answer(route: Route, body: str) -> None:
    """The whole log, then a line that ends; the page comes back for what follows: nothing."""
    begins = "after=0" in route.request.url
    text = body if begins else frame(connected(0))
    route.fulfill(content_type="text/event-stream", body=text)


def log_page(log: list[dict[str, Any]], url: str) -> dict[str, Any]:
    """The log as the server would give it: the page believes it when it says that nothing is there."""
    query = parse_qs(urlsplit(url).query)
    after, limit = int(query["after"][0]), int(query["limit"][0])
    items = log[after : after + limit]
    more = after + limit < len(log)
    return {"items": items, "next": items[-1]["position"] if more else None}


def connected(position: int) -> dict[str, Any]:
    payload = {"position": position, "tasks": [], "heartbeat": 15}
    return {"sequence": 0, "type": "connected", "payload": payload}


def frame(event: dict[str, Any]) -> str:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def history(session: str) -> Iterator[dict[str, Any]]:
    positions = count(1)
    for turn in range(TURNS):
        for sequence, (type_, payload) in enumerate(one_turn(session, turn), start=1):
            yield {
                "sequence": sequence,
                "position": next(positions),
                "type": type_,
                "task_id": f"task-{turn}",
                "created_at": "2026-01-31T09:30:00.000Z",
                "payload": payload,
            }


def one_turn(session: str, turn: int) -> Iterator[tuple[str, dict[str, Any]]]:
    goal = {"goal": f"Goal {turn}", "session_id": session, "trigger": "api", "follow_up_of": None}
    yield "task_created", goal
    yield "task_started", {"run": 1, "reason": "start", "model": "m", "limits": {}, "mode": "ask"}
    for step in range(1, STEPS + 2):
        yield "model_call_started", {"step": step, "model": "m", "attempt": 1}
        if step <= STEPS:
            yield "tool_call_requested", request(turn, step)
        else:
            text = f"Answer {turn}"
            message = {"step": step, "block_id": f"b{turn}", "text": text, "html": f"<p>{text}</p>"}
            yield "assistant_message", message
        usage = {"input_tokens": 10, "output_tokens": 5}
        finish = {"step": step, "finish_reason": "stop", "usage": usage, "duration_ms": 900}
        yield "model_call_finished", {**finish, "cost": None}
        if step <= STEPS:
            call = {"step": step, "tool_call_id": f"c{turn}-{step}"}
            yield "tool_call_started", call
            yield "tool_call_finished", {**call, "ok": True, "content": "text", "duration_ms": 3}
    yield "agent_completed", {"final_answer": f"Answer {turn}"}
    yield "task_completed", {}


def request(turn: int, step: int) -> dict[str, Any]:
    return {
        "step": step,
        "tool_call_id": f"c{turn}-{step}",
        "block_id": f"b{turn}-{step}",
        "index": 0,
        "name": "read_file",
        "arguments": {"path": f"file-{step}.md"},
        "capability": "file:read",
        "risk": "low",
        "decision": "allow",
        "rule": "default: file:read is allowed",
    }
