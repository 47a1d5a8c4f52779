"""Undoing a call on the page: the diff first, then the confirmation, and what happened."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import Browser, Site, Watched, axe
from tests.support.e2e_model import Call, Model


def written(window: Watched, model: Model, site: Site, name: str) -> Locator:
    """A finished task that overwrote a file; the opened card of its call."""
    (site.workspace / f"{name}.md").write_text("a person's line\n")
    call = Call("write_file", path=f"{name}.md", content="the agent's line\n")
    model.script(name, [call], ["It is ", "written."])
    window.ask(f"[{name}] write it")
    window.page.locator(".appr[data-open] .btn--go").click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    return opened(window.page)


def opened(page: Page) -> Locator:
    page.locator("details.fold:has(.fold__steps) > summary").first.click()
    card = page.locator("details.tool").first
    card.locator("summary").click()
    expect(card.locator(".tool__body dt").first).to_be_in_viewport()
    return card


def test_a_write_is_undone_after_its_diff_was_seen(
    window: Watched, model: Model, site: Site
) -> None:
    card = written(window, model, site, "undone")
    file = site.workspace / "undone.md"
    card.get_by_role("button", name="Undo…").click()
    expect(card.locator("tr.d .tx")).to_have_text(["the agent's line"])
    expect(card.locator("tr.a .tx")).to_have_text(["a person's line"])
    assert file.read_text() == "the agent's line\n"
    assert axe(window.page) == []
    card.get_by_role("button", name="Undo this call").click()
    expect(card.get_by_role("status")).to_contain_text("admin undid this call")
    assert file.read_text() == "a person's line\n"
    window.page.reload()
    card = opened(window.page)
    card.get_by_role("button", name="Undo…").click()
    expect(card.get_by_role("status")).to_contain_text("admin undid this call")
    assert window.problems == []


def test_a_file_that_an_undo_took_away_is_no_download(
    window: Watched, model: Model, site: Site
) -> None:
    call = Call("write_file", path="taken.md", content="new\n")
    model.script("taken", [call], ["Written."])
    window.ask("[taken] write it")
    page = window.page
    page.locator(".appr[data-open] .btn--go").click()
    expect(page.locator("#files .flist a[download]")).to_have_count(1)
    expect(page.locator("#files-count")).to_have_text("1 made")
    card = opened(page)
    card.get_by_role("button", name="Undo…").click()
    card.get_by_role("button", name="Undo this call").click()
    for _ in range(2):
        expect(page.locator("#files-count")).to_have_text("1 gone")
        expect(page.locator("#files .flist")).to_contain_text("taken.md")
        expect(page.locator("#files .flist a")).to_have_count(0)
        page.reload()


@pytest.mark.long
def test_what_changed_since_is_not_undone_and_who_may_not_has_no_button(
    window: Watched, browser: Browser, model: Model, site: Site
) -> None:
    card = written(window, model, site, "kept")
    card.get_by_role("button", name="Undo…").click()
    confirm = card.get_by_role("button", name="Undo this call")
    expect(confirm).to_be_visible()

    verena = browser.signed_in(site, site.member("verena", "viewer"))
    verena.open(window.page.url.removeprefix(site.url))
    theirs = opened(verena.page)
    theirs.get_by_role("button", name="Undo…").click()
    expect(theirs).to_contain_text("Whoever decides about such calls can undo it.")
    expect(theirs.get_by_role("button", name="Undo this call")).to_have_count(0)
    verena.context.close()

    (site.workspace / "kept.md").write_text("newer\n")
    confirm.click()
    expect(card.get_by_role("alert")).to_contain_text("Changed since the call: kept.md")
    assert (site.workspace / "kept.md").read_text() == "newer\n"
