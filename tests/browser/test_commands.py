"""A command on its card and in the thread: what a person reads is all of it, and exactly that."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.browser import Site, Watched, asking
from tests.support.e2e_model import Call, Model
from tests.support.needs import needs_sandbox

pytestmark = [
    pytest.mark.long,  # in the normal run: tests/js/diff.test.js, tests/e2e/test_commands.py
    needs_sandbox,
]
LINE = "echo '<b>new</b>' > made.txt  &&  wc -l made.txt\n# --- a\n# @@ -1 +1 @@"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, model: Model) -> object:
    env = asking(model) | {"PILOTHOUSE_ENABLE_SHELL": "1", "PILOTHOUSE_ENABLE_WEB": "1"}
    with Site(tmp_path_factory.mktemp("commands"), env) as running:
        yield running
        assert "Traceback" not in running.server.log


def test_a_command_is_shown_whole_and_its_result_with_what_changed(
    window: Watched, model: Model, site: Site
) -> None:
    model.script("line", [Call("run_command", command=LINE)], ["It is ", "done."])
    window.ask("[line] run it")
    card = window.page.locator(".appr[data-open]")
    evidence = card.locator(".diff__plain")
    expect(evidence).to_contain_text("sandbox: bubblewrap")
    shown = evidence.text_content() or ""
    lines = "".join(f"│ {line}\n" for line in LINE.split("\n"))
    assert shown.startswith(f"── command\n{lines}\n── where\n")
    assert shown.endswith("── what the line runs\necho '<b>new</b>'\n> made.txt\nwc -l made.txt\n")
    card.locator(".btn--go").click()
    turn = window.page.locator(".turn")
    expect(turn).to_have_attribute("data-state", "done")
    turn.locator(".fold summary").first.click()
    tool = turn.locator(".fold__steps .tool").first
    expect(tool).to_contain_text("Exit status 0, 1 file changed")
    tool.locator("summary").click()
    expect(tool).to_contain_text("+<b>new</b>")


def test_a_url_is_shown_with_its_host(window: Watched, model: Model, site: Site) -> None:
    model.script("url", [Call("fetch_url", url="http://b\u00fccher.example/x?q=1")], ["No."])
    window.ask("[url] fetch it")
    card = window.page.locator(".appr[data-open]")
    expect(card.locator(".diff__plain")).to_contain_text("GET http://xn--bcher-kva.example/x?q=1")
