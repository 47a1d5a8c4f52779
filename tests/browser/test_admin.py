"""The admin in a browser: what its pages share with the others, and that its lists have room."""

from __future__ import annotations

import pytest
from playwright.sync_api import ViewportSize, expect

from tests.support.browser import Browser, Site, Watched, axe
from tests.support.e2e_model import Call, Model

PHONE: ViewportSize = {"width": 390, "height": 844}
LISTS = [
    *("task", "approval", "session", "workspace", "artifact", "schedule", "webhook", "apitoken"),
    *("modelprofile", "policyrule", "auditentry", "notice", "mcptool", "modelusage"),
]


def test_the_admin_has_the_theme_of_the_pages_and_they_have_its(window: Watched) -> None:
    page = window.open("/settings")
    page.get_by_role("radio", name="Dark").check()
    window.open("/admin/")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.locator("#header .theme-toggle").click()
    taken = page.locator("html").get_attribute("data-theme")
    assert taken != "dark"
    window.open("/settings")
    expect(page.locator("html")).to_have_attribute("data-theme", str(taken))


def test_no_column_of_the_tasks_is_cut(window: Watched, model: Model, site: Site) -> None:
    model.script("listed", ["Done."])
    window.ask("[listed] Compare the quotes of all suppliers, and say which one is the cheapest")
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    page = window.open("/admin/tasks/task/")
    for width in (1440, 1366):
        page.set_viewport_size({"width": width, "height": 900})
        room = page.locator(".results").evaluate("e => e.clientWidth - e.scrollWidth")
        assert room == 0, width


def test_no_list_scrolls_sideways_on_a_phone(browser: Browser, site: Site, model: Model) -> None:
    path = "a/long/path/that-goes-on/and-on/without-a-place-to-break/2026-q3-comparison.md"
    model.script("phones", [Call("write_file", path=path, content="x\n")], ["Done."])
    task = site.api("POST", "/api/tasks", {"goal": "[phones] Compare the quotes of all suppliers"})
    window = browser.signed_in(site, viewport=PHONE)
    window.open(f"/c/{task['session_id']}").locator(".appr[data-open]").wait_for()
    for name in LISTS:
        page = window.open(f"/admin/tasks/{name}/")
        room = "e => [e.scrollWidth, e.clientWidth]"
        for place in (page.locator("html"), *page.locator(".results").all()):
            scrolled, seen = place.evaluate(room)
            assert scrolled <= seen, name
    page = window.open("/admin/tasks/approval/")
    row = page.locator("#result_list tbody tr").first
    expect(row.get_by_role("cell").first).to_have_attribute("data-label", "Status")
    expect(row).to_contain_text(path)
    assert window.problems == []


@pytest.mark.long
def test_the_lists_of_the_admin_are_accessible(window: Watched) -> None:
    for width in (1440, 390):
        window.page.set_viewport_size({"width": width, "height": 844})
        for name in LISTS:
            found = axe(window.open(f"/admin/tasks/{name}/"))
            # The search field's label is Django's: a picture with a name.
            assert [each for each in found if "searchbar" not in each] == [], (name, width)
