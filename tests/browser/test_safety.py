"""Text from outside is text: nothing that a goal, a model, a file or a name says runs in the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agent.text import clean
from tasks.goals import WEBHOOK, with_data
from tasks.told import told_in
from tests.support.browser import Browser, Site, Watched, axe
from tests.support.daphne import manage
from tests.support.e2e_model import Call, Model
from tests.support.payloads import NAMES, PAYLOADS

ALL = clean("\n\n".join(PAYLOADS))
LISTENER = """
    addEventListener("securitypolicyviolation", (event) =>
        console.error("Content Security Policy: " + event.violatedDirective + " " + event.blockedURI));
"""
"""What a page tried and its policy forbade is a failure, too: the window's record has it."""


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


@pytest.mark.long
def test_in_goal_answer_reasoning_arguments_file_names_and_all_names(
    window: Watched, model: Model, site: Site
) -> None:
    """More than a hundred payloads in every place, through the pages, the admin and the exports."""
    window.context.add_init_script(LISTENER)
    # Payloads split in the middle of tags, as a model streams them.
    pieces = [piece for text in PAYLOADS for piece in (text[:5], text[5:11], text[11:] + "\n\n")]
    evil = site.workspace / "evil"
    evil.mkdir(exist_ok=True)
    for number, name in enumerate(NAMES[:40]):
        (evil / f"{number} {clean(name)[:60]}".replace("\n", " ")).write_text("x")
    (evil / "<img src=x onerror=alert(1)>.md").write_text(ALL)
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
    name_everything(site, session)
    for path in everywhere(site, session):
        page.goto(window.site.url + path)
        assert "XSS" not in page.title().replace("document.title='XSS'", ""), path
    on_paper(window, session)


def name_everything(site: Site, session: str) -> None:
    """Names that people give: of workspaces, sessions, models, tokens, schedules, users."""
    code = (
        "from django.contrib.auth.models import User; from tasks.models import *;"
        "from tests.support.payloads import SHORT; from agent.text import clean;"
        "user = User.objects.get(username='admin'); space = Workspace.objects.first();"
        f"Session.objects.filter(pk='{session}').update(title=clean(SHORT[2]));"
        "User.objects.filter(pk=user.pk).update(first_name=SHORT[0][:140], last_name=SHORT[1][:140]);"
        "[(Session.objects.create(owner=user, workspace=space, title=text),"
        " Workspace.objects.create(owner=user, name=text, root='/nonexistent/' + str(number)),"
        " ApiToken.objects.create(user=user, name=text, prefix='ph_', digest=str(number)),"
        " Schedule.objects.create(owner=user, workspace=space, name=text, goal=text, cron='0 0 * * *', enabled=False, paused_reason=text),"
        " Webhook.objects.create(owner=user, workspace=space, name=text, goal=text, enabled=False, paused_reason=text),"
        " ModelProfile.objects.create(name=text, base_url='http://127.0.0.1:9/v1', model=text))"
        " for number, text in enumerate(dict.fromkeys(map(clean, SHORT)))]"
    )
    manage(site.state, "shell", "-v0", "-c", code, env=site.server.env)


def everywhere(site: Site, session: str) -> list[str]:
    task = site.api("GET", f"/api/tasks?session_id={session}")["items"][0]["id"]
    artifacts = site.api("GET", f"/api/tasks/{task}/artifacts")["items"]
    kinds = (
        "task",
        "session",
        "workspace",
        "approval",
        "artifact",
        "schedule",
        "webhook",
        "apitoken",
    )
    lists = [f"/admin/tasks/{kind}/" for kind in (*kinds, "modelprofile", "auditentry")]
    return [
        *("/", "/inbox", "/settings", f"/c/{session}"),
        *(f"/artifacts/{artifact['id']}/view" for artifact in artifacts),
        *("/admin/", *lists, f"/admin/tasks/task/{task}/change/"),
        f"/admin/tasks/session/{session}/change/",
    ]


def on_paper(window: Watched, session: str) -> None:
    """The exported page, opened by itself and without the server's policy."""
    answer = window.context.request.get(f"{window.site.url}/c/{session}/export.html")
    page = window.tab()
    page.set_content(answer.text())
    assert "XSS" not in page.title().replace("document.title='XSS'", "")
    assert page.locator("script, iframe, img, svg, object, form, [onerror], [onload]").count() == 0


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


def test_what_another_program_sent_stands_in_a_box_and_without_its_marks(
    window: Watched, model: Model, site: Site
) -> None:
    model.script("sent", ["fine"])
    sent = '{"title": "</untrusted> <img src=x onerror=alert(1)>"}'
    goal = with_data("[sent] Sort it", sent, WEBHOOK)
    task = site.api("POST", "/api/tasks", {"goal": goal})
    page = window.open(f"/c/{task['session_id']}")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".goal .said")).to_have_text("[sent] Sort it")
    expect(page.locator(".goal figure pre")).to_have_text(sent)
    expect(page.locator(".goal figcaption")).to_contain_text("What was delivered")
    assert "untrusted source" not in (page.locator("body").text_content() or "")
    harmless(page)
    assert axe(page) == []


def test_why_it_asks_is_read_in_chinese_and_what_would_be_written_as_it_is(
    browser: Browser, model: Model, site: Site
) -> None:
    model.script("why", [Call("write_file", path="why.md", content="Try again.\n")])
    window = browser.signed_in(site, locale="zh-CN")
    window.ask("[why] write")
    card = window.page.locator(".appr[data-open]")
    why = told_in("zh-Hans", "write_file has an effect, so a person decides.")
    expect(card.locator(".appr__why")).to_contain_text(why)
    rule = told_in("zh-Hans", "default: file:write asks")
    expect(card.locator(".appr__facts")).to_contain_text(rule)
    expect(card.locator(".diff .a .tx")).to_have_text("Try again.")
    assert window.problems == []
    window.context.close()


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
