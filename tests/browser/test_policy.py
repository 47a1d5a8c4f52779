"""What it may do here, beside the conversation; and the conversation handed over from itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser import Site, Watched, axe
from tests.support.e2e_model import Call, Model


def test_a_yes_for_the_session_is_shown_and_taken_back(
    window: Watched, model: Model, site: Site
) -> None:
    model.script("may", [Call("write_file", path="may.md", content="x\n")], ["Done."])
    window.ask("[may] write it")
    page = window.page
    panel = page.locator("#policy")
    write = panel.locator("li", has_text="write_file")
    expect(write.first).to_contain_text("Asks you")
    expect(write.first).to_contain_text("by default")
    expect(panel.locator("li", has_text="Run commands")).to_contain_text("switched off")
    card = page.locator(".appr[data-open]")
    card.get_by_label("This session").check()
    card.locator(".btn--go").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    rule = panel.locator("li", has_text="write_file on may.md")
    expect(rule).to_contain_text("this session, made by admin")
    expect(rule).to_contain_text("Allowed")
    assert axe(page) == []
    rule.get_by_role("button", name="Withdraw").click()
    page.locator("#ask").get_by_role("button", name="Withdraw").click()
    expect(rule).to_have_count(0)
    session = page.url.rpartition("/")[2]
    assert site.api("GET", f"/api/rules?session_id={session}")["items"] == []


def test_before_the_first_task_it_says_what_one_may_do(window: Watched, site: Site) -> None:
    session = site.api("POST", "/api/sessions", {"title": "Quotes of winter"})
    page = window.open(f"/c/{session['id']}")
    expect(page.locator("#policy li", has_text="write_file")).to_contain_text("Asks you")
    expect(page.locator("#budget")).to_be_hidden()


@pytest.mark.long
def test_a_call_that_is_opened_shows_what_it_was(window: Watched, model: Model) -> None:
    model.script("opened", [Call("list_files", path="."), Call("list_files", path="quotes")], ["."])
    window.ask("[opened] look")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    page.locator(".turn .fold > summary").first.click()
    for call in (0, 1):
        card = page.locator(".tool").nth(call)
        card.locator("summary").click()
        expect(card.locator(".tool__body dt").first).to_be_in_viewport()


@pytest.mark.long
def test_a_first_visit_begins_at_the_head_of_the_decision(
    window: Watched, model: Model, site: Site
) -> None:
    long = "".join(f"line {number}\n" for number in range(200))
    model.script("head", [Call("write_file", path="head.md", content=long)], ["Done."])
    window.ask("[head] write much")
    window.page.locator(".appr[data-open]").wait_for()
    page = window.tab()
    page.goto(window.page.url)
    expect(page.locator(".appr[data-open] h3")).to_be_in_viewport()
    expect(page.locator(".appr[data-open] tr.a").first).to_be_in_viewport()


@pytest.mark.long
def test_the_owner_hands_the_conversation_over(window: Watched, site: Site) -> None:
    session = site.api("POST", "/api/sessions", {"title": "Quotes of autumn"})
    page = window.open(f"/c/{session['id']}")
    expect(page.locator("#main")).to_contain_text("Nothing has been asked here yet.")
    heir = site.member("willa", "member")
    page.locator("#menu-button").click()
    page.get_by_role("button", name="Hand over…").click()
    dialog = page.locator("#ask")
    dialog.get_by_label("To whom").select_option(heir)
    assert axe(page) == []
    with page.expect_navigation():  # whose it is stands in many places, so the page is loaded anew
        dialog.get_by_role("button", name="Hand over").click()
    assert site.api("GET", f"/api/sessions/{session['id']}")["owner"] == heir
