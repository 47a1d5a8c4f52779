"""Text from outside is text: nothing that a goal, a model, a file or a name says runs in the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import Site, Watched
from tests.support.e2e_model import Call, Model

PAYLOADS: list[str] = json.loads((Path(__file__).parent / "data" / "payloads.json").read_text())
ALL = "\n\n".join(PAYLOADS)


def harmless(page: Page) -> None:
    """No title was set, nothing was injected, what cannot run is not there."""
    assert "XSS" not in page.title().replace("document.title='XSS'", "")
    inside = page.locator("#thread, #preview, #pending, #groups, .hello")
    for selector in (
        "script",
        "iframe",
        "img",
        "style",
        "form[action]",
        "object",
        "math",
        "input[onfocus]",
    ):
        assert inside.locator(selector).count() == 0, selector
    hrefs = page.eval_on_selector_all("#thread a[href]", "links => links.map(link => link.href)")
    assert [href for href in hrefs if not href.startswith(("http", "mailto"))] == []
    handlers = page.evaluate(
        "[...document.querySelectorAll('*')].flatMap(node => [...node.attributes])"
        ".filter(one => one.name.startsWith('on') || one.name === 'style' && one.ownerElement.closest('.md')).length"
    )
    assert handlers == 0


def test_in_goal_answer_reasoning_arguments_and_file_names(
    window: Watched, model: Model, site: Site
) -> None:
    # Payloads split in the middle of tags, as a model streams them.
    pieces = [piece for text in PAYLOADS for piece in (text[:5], text[5:11], text[11:] + "\n\n")]
    (site.workspace / "evil").mkdir(exist_ok=True)
    (site.workspace / "evil" / "<img src=x onerror=alert(1)>.md").write_text(ALL)
    model.script(
        "xss",
        [
            *pieces,
            Call("read_file", path="evil/<img src=x onerror=alert(1)>.md"),
            Call("list_files", path="evil"),
            Call("<b>no such tool</b>", text=ALL),
            Call("search_files", query="<svg/onload=alert(1)>"),
        ],
        [*pieces, Call("write_file", path="<svg onload=alert(1)>.md", content=ALL)],
        pieces,
    )
    session = window.ask(f"[xss] {ALL}")
    page = window.page
    card = page.locator(".appr[data-open]")
    card.wait_for()
    harmless(page)
    card.locator("summary", has_text="Edit before approving").click()
    page.locator(".turn .fold summary").first.click()
    for tool in page.locator(".fold__steps .tool > summary").all():
        tool.click()
    harmless(page)
    page.goto(window.site.url + "/inbox")
    page.locator("#preview .appr[data-open]").wait_for()
    harmless(page)
    page.goto(window.site.url + f"/c/{session}")
    page.locator(".appr[data-open] .btn--go").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    harmless(page)
    expect(page.locator(".turn .said").first).to_contain_text(
        "<script>document.title='XSS'</script>"
    )
    expect(page.locator(".md").last).to_contain_text("half")


@pytest.mark.long
def test_in_the_provider_s_error_and_in_the_title(window: Watched, model: Model) -> None:
    model.script("title", ["fine"])
    window.ask("[title] x")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    page.locator("#menu-button").click()
    page.locator("#menu-rename").click()
    page.locator("#title input").fill("<img src=x onerror=alert(1)>")
    page.keyboard.press("Enter")
    expect(page.locator("#groups")).to_contain_text("<img src=x onerror=alert(1)>")
    page.reload()
    expect(page.locator("#title")).to_have_text("<img src=x onerror=alert(1)>")
    harmless(page)


@pytest.mark.parametrize("path", ["/", "/inbox", "/settings"])
def test_inline_scripts_and_styles_are_refused_by_the_page_s_policy(
    window: Watched, path: str
) -> None:
    page = window.open(path)
    ran = page.evaluate(
        "() => { const node = document.createElement('script'); node.textContent = 'window.pwned = 1';"
        " document.body.append(node); return window.pwned === 1; }"
    )
    assert ran is False
    assert any("Content Security Policy" in problem for problem in window.problems)
    window.problems.clear()


def test_only_one_place_parses_html() -> None:
    scripts = Path(__file__).parents[2] / "static" / "app"
    found = [
        (file.name, line.strip())
        for file in sorted(scripts.glob("*.js"))
        for line in file.read_text("utf-8").splitlines()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
        if word in line
    ]
    assert found == [("dom.js", "node.innerHTML = html;")]
