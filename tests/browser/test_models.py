"""Another model for a session, and for a retry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.browser import Site, Watched
from tests.support.daphne import manage
from tests.support.e2e_model import Model

MAKE = (
    "from tasks.models import ModelProfile;"
    "[ModelProfile.objects.create(name=n, model=n, base_url={url!r}) for n in ('quick', 'deep')]"
)
DROP = (
    "from tasks.models import ModelProfile, Session, Task;"
    "Task.objects.update(model_profile=None); Session.objects.update(model_profile=None);"
    "ModelProfile.objects.all().delete()"
)


@pytest.fixture
def profiles(site: Site, model: Model) -> Iterator[None]:
    code = MAKE.format(url=model.base_url)
    manage(site.state, "shell", "-v0", "-c", code, env=site.server.env)
    yield
    manage(site.state, "shell", "-v0", "-c", DROP, env=site.server.env)


def models_of(site: Site, window: Watched, turn: int) -> set[str]:
    """Which models a turn of the page asked."""
    task = window.page.locator(".turn").nth(turn).get_attribute("data-task")
    log = site.api("GET", f"/api/tasks/{task}/events")["items"]
    return {e["payload"]["model"] for e in log if e["type"] == "model_call_started"}


@pytest.mark.usefixtures("profiles")
@pytest.mark.long
def test_a_session_and_a_retry_ask_the_model_that_was_chosen(
    window: Watched, model: Model, site: Site
) -> None:
    page = window.open("/")
    page.get_by_label("Model").select_option("quick")
    page.locator("#say").fill("[A45/models] go on")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    turns = page.locator(".turn")
    expect(turns.first).to_have_attribute("data-state", "failed")
    expect(page.locator("#model-name")).to_have_text("quick")
    assert models_of(site, window, 0) == {"quick"}

    note = turns.first.locator(".note--fail")
    note.get_by_label("Model for the retry").select_option("deep")
    note.get_by_role("button", name="Retry with").click()
    expect(turns.nth(1)).to_have_attribute("data-state", "done")
    assert models_of(site, window, 1) == {"deep"}

    page.get_by_label("Model of this session").select_option("deep")
    expect(page.locator("#model-name")).to_have_text("deep")
    page.reload()
    expect(page.get_by_label("Model of this session")).to_have_value(
        page.get_by_label("Model of this session")
        .locator("option", has_text="deep")
        .get_attribute("value")
        or ""
    )
    model.script("models", ["Here."])
    page.locator("#say").fill("[models] and now")
    page.keyboard.press("Enter")
    expect(turns.nth(2)).to_have_attribute("data-state", "done")
    assert models_of(site, window, 2) == {"deep"}
