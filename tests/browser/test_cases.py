"""What the page shows of everything that real servers were seen to send (the provider cases).

Every case runs in the product; the frames that a page would get are put through the page's own
scripts in node, cut at every frame. A few are looked at in the browser itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support import cases
from tests.support.browser import Site, Watched
from tests.support.sse import Parser

CASES = cases.names("A")
SHOWN = Path(__file__).parents[1] / "js" / "shown.js"
FAILS = {"A41", "A45"}
RETRIED = {"A20", "A39", "A43"}
"""Cases whose first attempt breaks off: nothing of it may stay."""
ENDS = ("task_completed", "task_failed", "task_cancelled", "budget_exceeded")


@pytest.fixture(scope="module")
def files(site: Site) -> Iterator[None]:
    for name in ("a.txt", "b.txt"):
        (site.workspace / name).write_text(name[0].upper() * 3)
    yield
    for name in ("a.txt", "b.txt"):
        (site.workspace / name).unlink()


@pytest.fixture(scope="module")
def shown(site: Site, files: None) -> dict[str, Any]:
    """By case: what the page's scripts make of its stream."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed (Debian: apt-get install nodejs)")
    site.api("GET", "/api/sessions")  # the token is made before the threads want it
    with ThreadPoolExecutor(10) as threads:
        frames = dict(zip(CASES, threads.map(lambda case: stream(site, case), CASES), strict=True))
    done = subprocess.run(
        [node, str(SHOWN)], input=json.dumps(frames), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stream(site: Site, case: str) -> list[dict[str, Any]]:
    """Everything that a page is sent while the case plays."""
    made = site.api("POST", "/api/tasks", {"goal": f"[{case}/page] Do it"})
    url = f"{site.url}/api/sessions/{made['session_id']}/stream?render=html&after=0"
    frames: list[dict[str, Any]] = []
    parser = Parser()
    with httpx.stream("GET", url, headers=site.headers(), timeout=30) as answer:
        for chunk in answer.iter_bytes():
            frames += [event.data for event in parser.feed(chunk)]
            if frames and frames[-1]["type"] in ENDS:
                return frames
    raise AssertionError(f"{case} did not end")


@pytest.mark.parametrize("case", CASES)
def test_the_page_shows_a_case_as_it_was_meant(shown: dict[str, Any], case: str) -> None:
    right, view = cases.expected(case), shown[case]
    [task] = view["tasks"]
    assert view["same_as_log"], "whatever was live, the page ends as the log"
    assert task["open"] == 0, "no bubble stays half written"
    assert view["ever"]["asked"] == [], "a broken call is not put to a person"
    if case in FAILS:
        assert task["state"] == "failed"
        assert task["error"]
        assert (task["texts"], task["calls"]) == ([], [])
        return
    assert (task["state"], task["error"]) == ("done", None)
    check_calls(task, right, case)
    check_words(task, right, case)
    assert all(text["html"] for text in task["texts"])
    check_apart(view, right)


def check_calls(task: dict[str, Any], right: dict[str, Any], case: str) -> None:
    wanted = [] if right["outcome"] == "error" else right["tool_calls"]
    calls = task["calls"][: len(wanted)]
    assert [call["name"] for call in calls] == [call["name"] for call in wanted]
    known = ("read_file", "list_files", "write_file")
    for call, expected in zip(calls, wanted, strict=True):
        if expected["arguments"] == "INVALID":
            assert (call["arguments"], call["state"]) == (None, "failed")
            assert call["raw"]
        else:
            assert (call["arguments"], call["raw"]) == (expected["arguments"], None)
            assert call["state"] == "failed" or (call["name"] in known and call["state"] == "done")
    if case != "A55":
        assert len(task["calls"]) == len(wanted)


def check_words(task: dict[str, Any], right: dict[str, Any], case: str) -> None:
    """Text and reasoning whole, once, and each in its place."""
    if case in RETRIED:
        assert len(task["texts"]) == 1, "nothing of the attempt that broke off"
        return
    if right["outcome"] != "ok":
        return
    said = [text["text"].strip() for text in task["texts"]]
    fine = [text.strip() for text in (right["text"], *right.get("text_any_of", []))]
    if fine[0]:
        assert said[0] in fine
    assert "".join(task["reasoning"]).strip() == right["reasoning"].strip()


def check_apart(view: dict[str, Any], right: dict[str, Any]) -> None:
    """At no moment was a thought shown as an answer, or the tags around it."""
    thought = right["reasoning"].strip() if right["outcome"] == "ok" else ""
    ever = " ".join(view["ever"]["texts"])
    assert "<think" not in ever
    assert "&lt;think" not in ever
    if thought:
        assert thought not in ever


@pytest.mark.usefixtures("files")
def test_a_thought_is_folded_and_not_part_of_the_answer(window: Watched) -> None:
    window.ask("[A49/window] go on")
    turn = window.page.locator(".turn")
    expect(turn).to_have_attribute("data-state", "done")
    right = cases.expected("A49")
    expect(turn.locator(".md")).to_have_count(1)
    expect(turn.locator(".md")).not_to_contain_text(right["reasoning"].strip()[:20])
    fold = turn.locator("details.fold", has_text="Reasoning")
    expect(fold).not_to_have_attribute("open", "")
    fold.locator("summary").click()
    expect(fold).to_contain_text(right["reasoning"].strip()[:20])


@pytest.mark.usefixtures("files")
def test_a_broken_call_is_told_and_not_offered(window: Watched) -> None:
    page = window.page
    window.ask("[A17/window] go on")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".appr")).to_have_count(0)
    page.locator("details.fold > summary").first.click()
    card = page.locator(".tool")
    expect(card).to_have_attribute("data-state", "failed")
    card.locator("summary").click()
    expect(card.locator("pre.plain")).not_to_be_empty()


@pytest.mark.usefixtures("files")
def test_what_broke_off_leaves_no_ghost(window: Watched) -> None:
    page = window.page
    window.ask("[A20/window] go on")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".turn .md")).to_have_count(1)
    before = page.locator(".turn").inner_text()
    page.reload()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert page.locator(".turn").inner_text() == before
