"""On a phone: a decision comes as a sheet, and nothing is cut."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from tests.support.browser import WIDE, Browser, Site, axe
from tests.support.e2e_model import Call, Hold, Model

PHONE: ViewportSize = {"width": 390, "height": 844}


def too_wide(page: Page) -> list[str]:
    """What reaches beyond the edge of the page without scrolling in its own box."""
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('main *')].filter(one => {"
        " const box = one.getBoundingClientRect();"
        " return box.width && box.right > innerWidth + 1 && !one.matches('.sr')"
        " && !one.parentElement.closest('.scroll-x, .subnav, .sr, pre')"
        "}).map(one => one.outerHTML.slice(0, 120))"
    )
    return found


@pytest.mark.parametrize("viewport", [PHONE, WIDE])
def test_a_wide_answer_scrolls_in_its_boxes_and_not_the_page(
    browser: Browser, site: Site, model: Model, viewport: ViewportSize
) -> None:
    row = f"| {' | '.join(['a_word_that_does_not_wrap'] * 12)} |"
    answer = f"{row}\n{'|---' * 12}|\n{row}\n\n```\n{'one line ' * 60}\n```\n"
    model.script("broad", [Call("list_files", path=".")], [answer])
    window = browser.signed_in(site, viewport=viewport)
    window.ask("[broad] compare")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert too_wide(page) == []
    for box in (page.locator(".md .scroll-x"), page.locator(".md .code")):
        column = page.locator("#thread").evaluate("e => e.getBoundingClientRect().right")
        assert box.evaluate("e => e.getBoundingClientRect().right") <= column
    for scrolls in (page.locator(".md .scroll-x"), page.locator(".md .code pre")):
        assert scrolls.evaluate("e => e.scrollWidth > e.clientWidth")


def test_the_people_of_a_workspace_are_read_on_a_phone(browser: Browser, site: Site) -> None:
    site.member("a-person-with-a-rather-long-name", "approver")
    workspace = site.api("GET", "/api/workspaces")["items"][0]["id"]
    page = browser.signed_in(site, viewport=PHONE).open(f"/workspaces/{workspace}")
    role = page.get_by_label("Role of a-person-with-a-rather-long-name")
    expect(role).to_have_value("approver")
    assert role.evaluate("e => e.clientWidth") > 150, "the word is not cut"
    assert too_wide(page) == []


@pytest.mark.long
def test_a_decision_is_a_sheet_that_escape_closes_and_that_decides(
    browser: Browser, site: Site, model: Model
) -> None:
    later = "".join(f"line {number}\n\n" for number in range(60))
    write = Call("write_file", path="phone.md", content="from a phone\n")
    model.script("phone", [later, write], ["Written."])
    phone = browser.signed_in(site, viewport=PHONE, has_touch=True)
    page = phone.page
    phone.ask("[phone] write it")
    card = page.locator(".appr[data-open]")
    card.wait_for()
    page.mouse.move(200, 300)
    page.mouse.wheel(0, -5000)
    page.locator("#callout").click()
    sheet = page.locator("#sheet")
    expect(sheet.locator(".appr h3")).to_have_text("Create phone.md")
    expect(sheet.locator(".appr")).to_be_focused()
    assert axe(page) == []
    card.get_by_label("Comment").fill("typed")

    for _ in range(12):
        page.keyboard.press("Tab")
        inside = "document.querySelector('#sheet').contains(document.activeElement) || document.activeElement === document.body"
        assert page.evaluate(inside)
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.locator("#thread .appr[data-open]")).to_have_count(1)

    page.locator("#callout").click()
    expect(card.get_by_label("Comment")).to_have_value("typed")
    sheet.locator(".btn--go").click()
    expect(sheet).to_be_hidden()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator("#thread")).to_contain_text("You approved: Create phone.md")
    assert too_wide(page) == []
    assert phone.problems == []
    phone.context.close()


@pytest.mark.long
def test_what_is_answered_elsewhere_says_so_in_the_sheet(
    browser: Browser, site: Site, model: Model
) -> None:
    end = Hold()
    text = "".join(f"line {number}\n\n" for number in range(60))
    model.script(
        "elsewhere", [text, Call("write_file", path="e.md", content="x")], [end, "So be it."]
    )
    phone = browser.signed_in(site, viewport=PHONE, has_touch=True)
    page = phone.page
    phone.ask("[elsewhere] write it")
    page.locator(".appr[data-open]").wait_for()
    page.mouse.move(200, 300)
    page.mouse.wheel(0, -5000)
    page.locator("#callout").click()
    task = page.locator(".turn").get_attribute("data-task")
    asked = site.api("GET", f"/api/approvals?task_id={task}")["items"][0]
    site.api("POST", f"/api/approvals/{asked['id']}/resolve", {"decision": "reject"})
    expect(page.locator("#sheet .appr")).to_contain_text("Rejected")
    page.keyboard.press("Escape")
    end.release()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert phone.problems == []
    phone.context.close()


def test_nothing_of_the_settings_is_cut(browser: Browser, site: Site) -> None:
    phone = browser.signed_in(site, viewport=PHONE)
    page = phone.open("/settings")
    table = page.locator("#policy .stacks")
    expect(table.get_by_role("cell", name="write_file").first).to_be_visible()
    expect(table.get_by_role("columnheader")).to_have_count(4)
    assert table.evaluate("one => one.scrollWidth <= one.clientWidth")
    assert too_wide(page) == []
    phone.context.close()
