"""The line to the server: reloads, two tabs, a killed server, no network, and silence after the end."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Browser, Site, Watched
from tests.support.e2e_model import Call, Hold, Model, words


def read(page: Page) -> str:
    """The words of the one answer, with nothing between them."""
    return " ".join(page.locator(".turn .md").inner_text().split())


def spoken(count: int) -> str:
    return " ".join(f"w{number}" for number in range(count))


def test_reload_in_mid_run_twice_loses_nothing(window: Watched, model: Model) -> None:
    first, second = Hold(), Hold()
    model.script("reload", [*words(30), first, *[f"w{n} " for n in range(30, 60)], second, "w60 "])
    window.ask("[reload] go on")
    page = window.page
    expect(page.locator(".md")).to_contain_text("w29")
    page.reload()
    expect(page.locator(".md")).to_contain_text("w29")
    assert read(page) == spoken(30)
    first.release()
    expect(page.locator(".md")).to_contain_text("w59")
    page.reload()
    expect(page.locator(".md")).to_contain_text("w59")
    assert read(page) == spoken(60)
    expect(page.locator(".md")).to_have_count(1)
    expect(page.locator(".cursor")).to_have_count(1)
    second.release()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert read(page) == spoken(61)
    page.reload()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert read(page) == spoken(61)
    expect(page.locator(".cursor")).to_have_count(0)


def test_two_tabs_see_the_same(window: Watched, model: Model) -> None:
    hold = Hold()
    model.script("tabs", [*words(10), hold, "w10 "])
    window.ask("[tabs] go on")
    expect(window.page.locator(".md")).to_contain_text("w9")
    other = window.tab()
    other.goto(window.page.url)
    expect(other.locator(".md")).to_contain_text("w9")
    hold.release()
    for page in (window.page, other):
        expect(page.locator(".turn")).to_have_attribute("data-state", "done")
        assert read(page) == spoken(11)
    # What one tab asks next, the other one shows.
    other.locator("#say").fill("[tabs] again")
    other.keyboard.press("Enter")
    for page in (window.page, other):
        expect(page.locator(".turn")).to_have_count(2)
        expect(page.locator(".turn").nth(1)).to_have_attribute("data-state", "done")


@pytest.mark.long
def test_what_is_queued_and_steered_is_shown(window: Watched, model: Model) -> None:
    hold = Hold()
    model.script("queue", ["Thinking. ", hold, Call("list_files", path=".")], ["Both read."])
    window.ask("[queue] first")
    page = window.page
    expect(page.locator(".md")).to_contain_text("Thinking")
    page.locator("#when label", has_text="Afterwards").click()
    page.locator("#say").fill("[queue] second")
    page.keyboard.press("Enter")
    expect(page.locator("#queue li")).to_have_text(re.compile(r"Afterwards, no. 1\[queue\] second"))
    page.locator("#when label", has_text="Next step").click()
    page.locator("#say").fill("mind the gap")
    page.keyboard.press("Enter")
    expect(page.locator("#queue")).to_contain_text("mind the gap")
    hold.release()
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").nth(1)).to_have_attribute("data-state", "done")
    expect(page.locator(".turn").first).to_contain_text("mind the gap")
    expect(page.locator("#queue")).to_be_hidden()


@pytest.mark.long
def test_stop_stops(window: Watched, model: Model) -> None:
    model.script("stop", [*words(5), Hold(), "never"])
    window.ask("[stop] go on")
    page = window.page
    expect(page.locator(".md")).to_contain_text("w4")
    page.keyboard.press("Control+.")
    expect(page.locator(".turn")).to_have_attribute("data-state", "stopped")
    expect(page.locator(".turn .note")).to_contain_text("You stopped it")
    expect(page.locator(".cursor")).to_have_count(0)


def test_offline_and_online_again(window: Watched, model: Model) -> None:
    hold = Hold()
    model.script("offline", [*words(10), hold, *[f"w{n} " for n in range(10, 20)]])
    window.ask("[offline] go on")
    page = window.page
    expect(page.locator(".md")).to_contain_text("w9")
    window.context.set_offline(True)
    expect(page.locator("#line")).to_contain_text("Connection lost")
    hold.release()
    window.context.set_offline(False)
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert read(page) == spoken(20)
    expect(page.locator("#line")).to_be_hidden(timeout=15_000)


@pytest.mark.long
def test_a_draft_survives_a_lost_server(window: Watched, model: Model) -> None:
    model.script("draft", ["Yes."])
    window.ask("[draft] one")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    window.context.set_offline(True)
    page.locator("#say").fill("[draft] two")
    page.keyboard.press("Enter")
    expect(page.locator("#problem")).to_contain_text("sending again is safe")
    expect(page.locator("#say")).to_have_value("[draft] two")
    window.context.set_offline(False)
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator("#say")).to_have_value("")


@pytest.mark.long
def test_no_request_to_the_stream_after_the_end(window: Watched, model: Model) -> None:
    model.script("end", ["Done."])
    page = window.page
    page.clock.install()
    window.ask("[end] be short")
    page.clock.run_for(1000)
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    opened = window.streams()
    page.clock.run_for(31_000)
    page.clock.run_for(120_000)
    assert window.streams() == opened
    # The next send opens it again.
    page.locator("#say").fill("[end] again")
    page.keyboard.press("Enter")
    page.clock.run_for(1000)
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").nth(1)).to_have_attribute("data-state", "done")
    assert window.streams() == opened + 1


def test_a_killed_server_is_waited_for(
    browser: Browser, site: Site, window: Watched, model: Model
) -> None:
    hold = Hold()
    model.script("killed", [*words(10), hold, "w10 "])
    window.ask("[killed] go on")
    page = window.page
    expect(page.locator(".md")).to_contain_text("w9")
    site.server.kill9()
    expect(page.locator("#line")).to_contain_text("trying again in")
    hold.release()
    site.server.start()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done", timeout=30_000)
    assert read(page) == spoken(11), "what was cut off never happened; the answer is there once"
    expect(page.locator(".turn")).to_contain_text("The server was restarted")
    expect(page.locator("#line")).to_be_hidden(timeout=15_000)
    page.reload()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert read(page) == spoken(11)
    expect(page.locator(".cursor")).to_have_count(0)
