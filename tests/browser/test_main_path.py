"""The first five minutes: ask, watch, approve, read the result, come back. With hands and with keys."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import Site, Watched, axe

GOAL = "Compare the supplier quotes and write a report"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """As it is delivered: the demo model on the demo files."""
    with Site(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_report_yet(site: Site) -> None:
    shutil.rmtree(site.workspace / "reports", ignore_errors=True)


def test_ask_stream_approve_result_reload(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    card = page.locator(".appr[data-open]")
    expect(card.locator("h3")).to_have_text("Create reports/supplier-report.md")
    expect(card.locator(".diff tr.a")).not_to_have_count(0)
    expect(page.locator("#state")).to_have_text("Waits for you")
    report = window.site.workspace / "reports" / "supplier-report.md"
    assert not report.exists(), "nothing is written before it is allowed"
    card.locator(".btn--go").click()
    turn = page.locator(".turn")
    expect(turn).to_have_attribute("data-state", "done")
    expect(turn.locator(".md")).to_contain_text("The report is in")
    assert report.exists()
    page.reload()
    expect(turn.locator(".md")).to_contain_text("The report is in")
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.locator(".fold").first).to_contain_text("3 steps, 11 calls")
    expect(page.locator("#files")).to_contain_text("reports/supplier-report.md")


@pytest.mark.long
def test_the_result_can_be_opened_and_downloaded(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    page.locator(".appr[data-open] .btn--go").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    with page.expect_download() as download:
        page.locator("#files a[download]").click()
    assert "Supplier report" in download.value.path().read_text()
    page.locator("#files a").first.click()
    expect(page.locator("body")).to_contain_text("Recommendation")


def test_a_page_that_fits_has_nothing_to_scroll(window: Watched) -> None:
    for path in ("/", "/inbox"):
        page = window.open(path)
        expect(page.locator("#main")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollHeight === innerHeight"), path


def test_by_keys_alone(window: Watched) -> None:
    page = window.open("/")
    page.keyboard.type(GOAL)
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    card = page.locator(".appr[data-open]")
    card.wait_for()
    page.wait_for_timeout(500)  # a key within 400 ms after a card appeared does nothing
    page.locator("body").press("j")
    expect(card).to_be_focused()
    page.keyboard.press("Escape")
    expect(card).to_be_visible()
    page.keyboard.press("r")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".md")).to_contain_text("not")
    expect(page.locator("#say")).to_be_focused()
    page.locator("body").focus()
    page.locator(".turn .fold summary").first.press("Enter")
    expect(page.locator(".fold__steps .tool").first).to_be_visible()


@pytest.mark.long
def test_live_regions_speak(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    status = page.locator("#say-status")
    expect(status).to_contain_text("Waits for you: Create reports/supplier-report.md. Medium risk.")
    expect(page.locator("#thread")).to_have_attribute("aria-live", "off")
    page.locator(".appr[data-open] .btn--go").click()
    expect(status).to_contain_text("Done. The report is in")


@pytest.mark.long
def test_title_and_icon_say_that_somebody_is_needed(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    page.locator(".appr[data-open]").wait_for()
    expect(page).to_have_title(re.compile(r"^\(\d+\) Compare the supplier quotes"))
    icon = page.locator('link[rel="icon"]')
    expect(icon).to_have_attribute("href", re.compile(r"mark-waiting\.svg$"))


@pytest.mark.long
def test_the_inbox_lists_decides_and_goes_on(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    page.locator(".appr[data-open]").wait_for()
    page = window.open("/inbox")
    rows = page.locator("#pending .row")
    expect(rows.first).to_contain_text("Create reports/supplier-report.md")
    before = rows.count()
    page.locator("#preview .appr[data-open] .btn--no").click()
    expect(rows).to_have_count(before - 1)
    expect(page.locator("#decided")).to_contain_text("Rejected by you")


@pytest.mark.long
def test_rename_archive_delete(window: Watched) -> None:
    window.ask(GOAL)
    page = window.page
    page.locator(".appr[data-open] .btn--no").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    page.locator("#menu-button").click()
    page.locator("#menu-rename").click()
    page.locator("#title input").fill("Paper & lamps")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Paper & lamps")
    expect(page.locator("#groups")).to_contain_text("Paper & lamps")
    page.locator("#menu-button").click()
    page.locator("#menu-delete").click()
    expect(page.locator("#ask")).to_contain_text("Delete “Paper & lamps” for good?")
    page.locator("#ask .btn--no").click()
    page.wait_for_url(window.site.url + "/")
    expect(page.locator("#groups")).not_to_contain_text("Paper & lamps")


@pytest.mark.long
def test_search_finds_goals(window: Watched) -> None:
    window.ask("Zanzibar freight rates")
    page = window.page
    page.locator("#title").click()
    page.locator("body").press("/")
    page.keyboard.type("zanzibar")
    expect(page.locator("#groups .sess")).to_have_count(1)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_axe_finds_nothing(window: Watched, theme: str) -> None:
    window.context.add_cookies([{"name": "theme", "value": theme, "url": window.site.url}])
    found = {}
    page = window.open("/")
    found["/"] = axe(page)
    session = window.ask(GOAL)
    page.locator(".appr[data-open]").wait_for()
    page.locator(".appr__sec summary").click()
    found["waiting"] = axe(page)
    page.goto(window.site.url + "/inbox")
    page.locator("#preview .appr[data-open]").wait_for()
    found["inbox"] = axe(page)
    page.goto(window.site.url + "/settings")
    found["settings"] = axe(page)
    page.goto(window.site.url + f"/c/{session}")
    page.locator(".appr[data-open] .btn--go").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    page.locator(".turn .fold summary").first.click()
    page.locator(".fold__steps .tool summary").first.click()
    found["done"] = axe(page)
    assert {place: wrong for place, wrong in found.items() if wrong} == {}


@pytest.mark.long
def test_chinese_all_the_way(window: Watched) -> None:
    page = window.open("/settings")
    page.locator("#language").select_option("zh-hans")
    expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    window.ask(GOAL)
    expect(page.locator("#state")).to_have_text("等你决定")
    expect(page.locator(".appr[data-open] .btn--go")).to_contain_text("批准一次")


@pytest.mark.long
@pytest.mark.parametrize("width", [390, 1024])
def test_narrow_screens_have_drawers(window: Watched, width: int) -> None:
    page = window.page
    page.set_viewport_size({"width": width, "height": 800})
    window.ask(GOAL)
    page.locator(".appr[data-open]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("[data-inspector-toggle]").click()
    expect(page.locator("#inspector")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#inspector")).to_be_hidden()
    expect(page.locator(".appr[data-open]")).to_be_visible()


@pytest.mark.long
def test_what_is_archived_is_found_and_brought_back(window: Watched) -> None:
    session = window.ask("Put me away")
    page = window.page
    page.locator("#menu-button").click()
    page.locator("#menu-archive").click()
    page.wait_for_url(window.site.url + "/")
    link = page.locator(f'#groups a[href="/c/{session}"]')
    expect(link).to_have_count(0)
    page.locator("#archive").click()
    link.click()
    page.locator("#menu-button").click()
    expect(page.locator("#menu-archive")).to_have_text("Bring back from the archive")
    page.locator("#menu-archive").click()
    expect(link).to_have_count(1)
