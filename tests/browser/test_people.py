"""The page of a workspace: who is in it, and whose its sessions are."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from tests.support.browser import Browser, Site, Watched


def workspace_of(site: Site) -> str:
    found: str = site.api("GET", "/api/workspaces")["items"][0]["id"]
    return found


@pytest.mark.long
def test_the_owner_lets_in_hands_over_and_removes(
    browser: Browser, window: Watched, site: Site
) -> None:
    name = site.member("wanda", "viewer")
    session = site.api("POST", "/api/sessions", {"title": "Quotes of spring"})
    page = window.open("/settings")
    page.get_by_role("link", name="demo", exact=True).click()
    row = page.locator("#people tr").filter(has_text=name)
    expect(row).to_have_count(1)
    row.get_by_label(f"Role of {name}").select_option("approver")
    members = f"/api/workspaces/{workspace_of(site)}/members"
    expect(page.locator("#theirs tr").filter(has_text="Quotes of spring")).to_contain_text("admin")

    heir = page.get_by_label("Hand over Quotes of spring")
    heir.select_option(name)
    page.locator("#ask").get_by_role("button", name="Hand over").click()
    expect(page.locator("#theirs tr").filter(has_text="Quotes of spring")).to_contain_text(name)
    assert site.api("GET", f"/api/sessions/{session['id']}")["owner"] == name
    roles = {item["username"]: item["role"] for item in site.api("GET", members)["items"]}
    assert roles[name] == "approver"

    violations = Axe().run(page).response["violations"]
    assert [found["id"] for found in violations] == []

    row.get_by_role("button", name=f"Remove {name}").click()
    page.locator("#ask").get_by_role("button", name="Remove").click()
    expect(row).to_have_count(0)
    expect(page.locator("#theirs tr").filter(has_text="Quotes of spring")).to_contain_text("admin")

    page.locator("#add-name").fill("nobody-here")
    page.get_by_role("button", name="Let in").click()
    expect(page.locator("#toasts")).to_contain_text("There is no such user.")


@pytest.mark.long
def test_a_member_looks_and_changes_nothing(browser: Browser, site: Site) -> None:
    opened = browser.signed_in(site, site.member("walter", "member"))
    page = opened.page
    page.goto(f"{site.url}/workspaces/{workspace_of(site)}")
    expect(page.locator("#people tr").filter(has_text="walter")).to_have_count(1)
    expect(page.locator("#people select, #people button, #add")).to_have_count(0)
    assert opened.problems == []
    opened.context.close()
