"""The admin in a browser: what its pages share with the others, and that its lists have room."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.support.browser import Site, Watched
from tests.support.e2e_model import Model


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
