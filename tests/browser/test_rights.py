"""A card offers what its reader may do, and says who may do the rest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.support.browser import Browser, Site, Watched, asking
from tests.support.e2e_model import Call, Model


def asked(window: Watched, model: Model, name: str) -> Locator:
    model.script(name, [Call("write_file", path=f"{name}.md", content="new\n")], ["Written."])
    window.ask(f"[{name}] write it")
    return window.page.locator(".appr[data-open]")


def test_who_only_owns_the_session_is_not_offered_always(
    browser: Browser, model: Model, site: Site
) -> None:
    peter = browser.signed_in(site, site.member("petra", "member"))
    card = asked(peter, model, "reach")
    expect(card.get_by_text("may answer for always")).to_be_visible()
    expect(card.get_by_role("radio")).to_have_count(3)
    card.get_by_text("This session", exact=True).click()
    card.locator(".btn--go").click()
    expect(peter.page.locator(".turn")).to_have_attribute("data-state", "done")
    assert (site.workspace / "reach.md").exists()
    assert peter.problems == []
    peter.context.close()


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Site]:
    """Where writing needs another person's yes."""
    env = asking(model) | {"PILOTHOUSE_OTHER_APPROVER": "write"}
    with Site(tmp_path_factory.mktemp("strict"), env) as running:
        yield running


@pytest.mark.long
def test_who_asked_may_only_reject_and_reads_why(
    browser: Browser, model: Model, strict: Site
) -> None:
    window = browser.signed_in(strict, locale="zh-CN")
    card = asked(window, model, "own")
    expect(card.get_by_text("你可以拒绝")).to_be_visible()
    expect(card.locator(".btn--go")).to_have_count(0)
    card.locator(".btn--no").click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    assert not (strict.workspace / "own.md").exists()
    window.context.close()
