"""Decisions that meet the world: edited, stale, answered elsewhere, expired, not sent; several at once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.support.browser import Browser, Site, Watched, axe
from tests.support.e2e_model import Call, Model

OLD = "# Plan\n\nOrder from Hanse Marine at 212 euro.\nTotal: 5,088\n"


def ask_to_write(window: Watched, model: Model, name: str, **arguments: Any) -> Locator:
    """A task that stops before it writes; its card."""
    call = {"path": f"{name}.md", "content": "new text\n", **arguments}
    model.script(name, [Call("write_file", **call)], ["It is ", "written."])
    window.ask(f"[{name}] write it")
    card = window.page.locator(".appr[data-open]")
    card.wait_for()
    return card


def task_of(window: Watched) -> str:
    return window.page.locator(".turn").first.get_attribute("data-task") or ""


def pending(site: Site, task_id: str) -> dict[str, Any]:
    found: dict[str, Any] = site.api("GET", f"/api/approvals?status=pending&task_id={task_id}")
    item: dict[str, Any] = found["items"][0]
    return item


@pytest.mark.long
def test_the_diff_shows_lines_and_words(window: Watched, model: Model, site: Site) -> None:
    (site.workspace / "plan.md").write_text(OLD)
    new = OLD.replace("Hanse Marine at 212", "Nordlicht at 186")
    card = ask_to_write(window, model, "diff", path="plan.md", content=new)
    expect(card.locator("h3")).to_have_text("Overwrite plan.md")
    expect(card.locator("tr.d .tx")).to_have_text("Order from Hanse Marine at 212 euro.")
    expect(card.locator("tr.d del")).to_have_text(["Hanse Marine", "212"])
    expect(card.locator("tr.a ins")).to_have_text(["Nordlicht", "186"])
    expect(card.locator("tr.a .ln").nth(1)).to_have_text("3")


def test_an_edit_is_previewed_before_it_is_approved(
    window: Watched, model: Model, site: Site
) -> None:
    card = ask_to_write(window, model, "edited")
    title, bound = card.locator("h3"), card.locator(".appr__facts code").last
    asked = bound.inner_text()
    card.locator("summary", has_text="Edit before approving").click()
    card.get_by_label("content").fill("better text\n")
    card.get_by_label("path").fill("better.md")
    go = card.locator(".btn--go")
    expect(go).to_contain_text("Preview the edited call")
    go.click()
    expect(card.locator("tr.a .tx")).to_have_text(["better text"])
    expect(title).to_have_text("Create better.md")
    expect(bound).not_to_have_text(asked)
    assert not (site.workspace / "better.md").exists()
    card.get_by_label("content").fill("best text\n")
    expect(title).to_have_text("Create edited.md")  # until it is previewed again
    expect(bound).to_have_text(asked)
    go.click()
    expect(go).to_contain_text("Approve the edited call once")
    go.click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    assert (site.workspace / "better.md").read_text() == "best text\n"
    assert not (site.workspace / "edited.md").exists()
    expect(window.page.locator(".turn")).to_contain_text("You approved: Create better.md")
    expect(window.page.locator(".turn")).to_contain_text("with an edit")


@pytest.mark.long
def test_what_changed_since_its_preview_is_shown_before_it_is_approved(
    window: Watched, model: Model, site: Site
) -> None:
    other = site.workspace / "another.md"
    card = ask_to_write(window, model, "moved")
    card.locator("summary", has_text="Edit before approving").click()
    card.get_by_label("path").fill("another.md")
    go = card.locator(".btn--go")
    go.click()
    expect(go).to_contain_text("Approve the edited call once")
    other.write_text("somebody's work\n")
    go.click()
    expect(card.locator(".hint--bad")).not_to_be_empty()
    assert other.read_text() == "somebody's work\n"
    go.click()
    expect(card.locator("tr.d .tx")).to_have_text(["somebody's work"])
    go.click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")


@pytest.mark.long
def test_a_refused_edit_says_why_and_stays(window: Watched, model: Model, site: Site) -> None:
    card = ask_to_write(window, model, "refused")
    card.locator("summary", has_text="Edit before approving").click()
    card.get_by_label("path").fill("../outside.md")
    card.locator(".btn--go").click()
    expect(card.locator(".hint--bad")).not_to_be_empty()
    expect(card.locator(".btn--go")).to_contain_text("Preview the edited call")
    assert pending(site, task_of(window))["status"] == "pending"


@pytest.mark.long
def test_rejected_with_a_comment_that_the_agent_reads(
    window: Watched, model: Model, site: Site
) -> None:
    card = ask_to_write(window, model, "rejected")
    card.get_by_label("Comment").fill("not on a Sunday")
    card.locator(".btn--no").click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(window.page.locator(".turn")).to_contain_text("not on a Sunday")
    assert not (site.workspace / "rejected.md").exists()
    assert "not on a Sunday" in str(model.runs["rejected"].bodies[-1])


@pytest.mark.long
def test_answered_elsewhere_before_and_at_the_same_time(
    window: Watched, model: Model, site: Site
) -> None:
    peter = site.member("peter", "approver")
    card = ask_to_write(window, model, "elsewhere")
    approval = pending(site, task_of(window))
    # The page hears nothing of it, and answers: the first answer wins.
    window.page.route(re.compile(r"/stream\?"), lambda route: route.abort())
    window.page.route(re.compile(r"/events\?"), lambda route: route.abort())
    window.context.set_offline(True)
    site.api(
        "POST",
        f"/api/approvals/{approval['id']}/resolve",
        {"decision": "reject", "comment": "keep it"},
        user=peter,
    )
    window.context.set_offline(False)
    card = window.page.locator(f"#approval-{approval['id']}")
    card.locator(".btn--go").click()
    expect(card).to_contain_text("peter rejected it before your answer. Yours was not used.")
    expect(card.locator(".appr__do")).to_have_count(0)
    assert not (site.workspace / "elsewhere.md").exists()


def test_a_changed_file_is_asked_anew(window: Watched, model: Model, site: Site) -> None:
    (site.workspace / "stale.md").write_text("first\n")
    card = ask_to_write(window, model, "stale")
    expect(card.locator("tr.d .tx")).to_have_text(["first"])
    (site.workspace / "stale.md").write_text("second\n")
    card.locator(".btn--go").click()
    page = window.page
    successor = page.locator(".appr[data-open]")
    expect(successor).to_contain_text("The file changed after you were asked")
    expect(successor.locator("tr.d .tx")).to_have_text(["second"])
    assert (site.workspace / "stale.md").read_text() == "second\n"
    successor.locator(".btn--go").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert (site.workspace / "stale.md").read_text() == "new text\n"


@pytest.mark.long
def test_a_decision_that_did_not_arrive_can_be_pressed_again(
    window: Watched, model: Model, site: Site
) -> None:
    card = ask_to_write(window, model, "unsent")
    window.page.route("**/resolve", lambda route: route.abort())
    card.locator(".btn--go").click()
    expect(card).to_contain_text("Your decision did not reach the server")
    expect(card).to_contain_text("Pressing again is safe")
    window.page.unroute("**/resolve")
    card.locator(".btn--go").click()
    expect(window.page.locator(".turn")).to_have_attribute("data-state", "done")
    assert (site.workspace / "unsent.md").exists()


@pytest.mark.long
def test_keys_decide_only_in_the_card_and_not_in_a_field(
    window: Watched, model: Model, site: Site
) -> None:
    card = ask_to_write(window, model, "keys")
    page = window.page
    page.wait_for_timeout(500)
    page.locator("#title").click()
    page.locator("body").press("a")
    card.get_by_label("Comment").click()
    page.keyboard.type("area")
    expect(card.get_by_label("Comment")).to_have_value("area")
    page.locator("#say").fill("aer")
    assert pending(site, task_of(window))["status"] == "pending"
    card.focus()
    page.keyboard.press("e")
    expect(card.get_by_label("content")).to_be_focused()
    card.focus()
    page.keyboard.press("a")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")


@pytest.mark.long
def test_an_answer_for_the_session_is_a_rule_that_can_be_withdrawn(
    window: Watched, model: Model, site: Site
) -> None:
    write = Call("write_file", path="ruled.md", content="one\n")
    again = Call("write_file", path="ruled.md", content="two\n")
    model.script("ruled", [write], [again], ["Both written."])
    window.ask("[ruled] write it")
    page = window.page
    card = page.locator(".appr[data-open]")
    expect(card.locator(".appr__scope .hint")).to_contain_text("Exactly this call")
    card.get_by_label("This session").check()
    expect(card.locator(".appr__scope .hint")).to_contain_text("Rule: write_file on ruled.md.")
    card.get_by_role("button", name="Approve for this session").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".turn")).to_contain_text("You approved: Create ruled.md for this session")
    assert (site.workspace / "ruled.md").read_text() == "two\n"

    page = window.open("/settings")
    rule = page.locator("#rules-rows tr", has_text="write_file on ruled.md")
    expect(rule).to_contain_text("one session")
    assert axe(page) == []
    rule.get_by_role("button", name="Withdraw").click()
    page.locator("#ask").get_by_role("button", name="Withdraw").click()
    expect(rule).to_have_count(0)
    assert "ruled.md" not in str(site.api("GET", "/api/rules")["items"])


@pytest.mark.long
def test_more_time_is_a_press_away(window: Watched, model: Model, site: Site) -> None:
    card = ask_to_write(window, model, "snooze")
    before = pending(site, task_of(window))["expires_at"]
    card.get_by_role("button", name="More time").click()
    expect(card.locator("[data-left]")).to_contain_text("left")
    assert pending(site, task_of(window))["expires_at"] > before
    card.get_by_role("button", name="Reject").click()


@pytest.mark.long
def test_a_question_is_answered_on_its_card(window: Watched, model: Model, site: Site) -> None:
    ask = Call("ask_user", question="Which <b>year</b>?", options=["2025", "Since 2026"])
    model.script("question", [ask], ["Done."])
    window.ask("[question] go on")
    page = window.page
    card = page.locator(".appr[data-open]")
    expect(card.locator("h3")).to_have_text("Which <b>year</b>?")
    page.wait_for_timeout(500)  # a key pressed at once is not meant for the card
    card.focus()
    page.keyboard.press("a")
    expect(card.get_by_role("alert")).to_have_text("Choose an answer or write one.")
    assert axe(page) == []
    page.keyboard.press("Space")
    card.get_by_label("Or in your words").fill("Both, please")
    expect(card.get_by_label("2025")).not_to_be_checked()
    card.get_by_role("button", name="Answer").click()
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    expect(page.locator(".turn")).to_contain_text("You answered: Which <b>year</b>? “Both, please”")
    log = site.api("GET", f"/api/tasks/{task_of(window)}/events")["items"]
    assert any(e["payload"].get("details") == {"answer": "Both, please"} for e in log)


@pytest.mark.long
def test_alike_decisions_are_taken_together(window: Watched, model: Model, site: Site) -> None:
    for name in ("batch-one", "batch-two"):
        ask_to_write(window, model, name, path=f"together/{name}.md")
    page = window.open("/inbox")
    rows = page.locator("#pending .row")
    for name in ("batch-one", "batch-two"):
        row = rows.filter(has_text=f"together/{name}.md")
        expect(row).to_contain_text("Chat")
        expect(row.locator("time")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))
        row.locator("input").check()
    expect(page.locator("#batch-words")).to_contain_text("2 selected")
    page.locator("#batch-approve").click()
    expect(page.locator("#toasts")).to_contain_text("2 decided")
    expect(rows.filter(has_text="together/")).to_have_count(0)
    for name in ("batch-one", "batch-two"):
        expect(page.locator("#decided")).to_contain_text(f"together/{name}.md")


@pytest.mark.long
def test_the_inbox_is_narrowed_and_worked_by_keys(
    window: Watched, model: Model, site: Site
) -> None:
    for name in ("keys-one", "keys-two"):
        ask_to_write(window, model, name, path=f"by-keys/{name}.md")
    page = window.open("/inbox")
    rows = page.locator("#pending .row").filter(has_text="by-keys/")
    expect(rows).to_have_count(2)
    session = page.get_by_label("Session", exact=True)
    session.select_option(label="[keys-one] write it")
    expect(rows).to_have_count(1)
    page.reload()
    expect(rows).to_have_count(1)
    session.select_option(label="All")
    expect(rows).to_have_count(2)

    for row in rows.all():
        row.locator("a").click()
        page.keyboard.press("x")
        expect(row.locator("input")).to_be_checked()
    page.keyboard.press("r")
    expect(page.locator("#toasts")).to_contain_text("2 decided")
    expect(rows).to_have_count(0)
    assert not (site.workspace / "by-keys").exists()


def test_a_failed_task_says_why_and_goes_on_when_asked(window: Watched, model: Model) -> None:
    page = window.page
    window.ask("[A45/chat] go on")
    expect(page.locator(".turn").first).to_have_attribute("data-state", "failed")
    note = page.locator(".turn .note--fail")
    expect(note.locator("p").first).not_to_be_empty()
    note.get_by_role("button", name="Retry").click()
    expect(page.locator(".turn").nth(1)).to_have_attribute("data-state", "done")
    expect(page.locator(".turn").nth(1)).to_contain_text("DONE-A45")


@pytest.mark.long
def test_the_same_call_again_and_again_is_a_question(window: Watched, model: Model) -> None:
    page = window.page
    window.ask("[D08/chat] go on")
    card = page.locator(".appr[data-open]")
    expect(card.locator("h3")).to_have_text("Go on after the same call again and again?")
    card.get_by_role("button", name="Stop here").click()
    expect(page.locator(".turn")).to_have_attribute(
        "data-state", re.compile("done|failed|stopped|limit")
    )


@pytest.mark.long
def test_who_may_only_look_gets_no_buttons(
    browser: Browser, window: Watched, model: Model, site: Site
) -> None:
    ask_to_write(window, model, "look")
    vera = browser.signed_in(site, site.member("vera", "viewer"))
    page = vera.page
    page.goto(window.page.url)
    expect(page.locator(".appr[data-open] tr.a")).to_have_count(1)
    expect(page.locator(".appr[data-open] button.btn--go")).to_have_count(0)
    expect(page.locator("#compose")).to_be_hidden()
    page.locator(".appr[data-open]").focus()
    page.keyboard.press("a")
    assert pending(site, task_of(window))["status"] == "pending"
    assert vera.problems == []
    vera.context.close()


@pytest.mark.long
def test_an_expired_decision_loses_its_buttons_and_says_what_did_not_happen(
    window: Watched, model: Model
) -> None:
    card = ask_to_write(window, model, "expired")
    error = {"code": "expired", "message": "Nobody answered in time, so it counts as rejected."}
    window.page.route("**/resolve", lambda route: route.fulfill(status=409, json={"error": error}))
    name = card.get_attribute("id")
    card.locator(".btn--go").click()
    card = window.page.locator(f"#{name}")
    expect(card).to_contain_text(
        "Nobody answered in time, so it was rejected and nothing was done."
    )
    expect(card.locator(".appr__do")).to_have_count(0)


@pytest.mark.long
def test_an_unknown_outcome_is_put_before_a_person(window: Watched, model: Model) -> None:
    """The card and what its buttons send; what the server makes of it is tested with the server."""
    model.script("unknown", ["Yes."])
    session = window.ask("[unknown] begin")
    page = window.page
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    log = list(interrupted(session))
    body = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in log)
    page.route(
        re.compile(r"/stream\?"),
        lambda route: route.fulfill(content_type="text/event-stream", body=body),
    )
    page.route(
        re.compile(r"/events\?"), lambda route: route.fulfill(json={"items": [], "next": None})
    )
    sent: list[Any] = []

    def resolve(route: Route) -> None:
        sent.append(route.request.post_data_json)
        route.fulfill(status=202, json={"approval": {"status": "approved", "resolved_by": "admin"}})

    page.route("**/resolve", resolve)
    page.reload()
    card = page.locator(".appr[data-open]")
    expect(card.locator("h3")).to_have_text("Did write_file finish?")
    expect(card).to_contain_text("It is not repeated without you.")
    expect(card).to_contain_text("No time limit")
    expect(card.locator(".btn--go")).to_have_count(0)
    card.get_by_role("button", name="Run it again").click()
    expect(card).to_have_count(0)
    assert sent == [{"decision": "approve", "answer": "retry"}]


def interrupted(session: str) -> Iterator[dict[str, Any]]:
    call = {"step": 1, "tool_call_id": "c"}
    asked = {
        **call,
        "name": "write_file",
        "arguments": {"path": "a.md"},
        "capability": "file:write",
        "risk": "medium",
        "rule": "recovery",
    }
    question = {
        **asked,
        "kind": "unknown_effect",
        "reason": "The server stopped after it had started.",
        "diff": "",
        "options": ["done", "retry"],
        "arguments_digest": "",
        "target_digest": "",
        "approval_id": "a",
        "expires_at": None,
    }
    goal = {"goal": "write", "session_id": session, "trigger": "api", "follow_up_of": None}
    run = {"run": 1, "reason": "start", "model": "m", "limits": {}, "mode": "ask"}
    log = [
        ("task_created", goal),
        ("task_started", run),
        ("model_call_started", {"step": 1, "model": "m", "attempt": 1}),
        ("tool_call_requested", {**asked, "block_id": "b", "index": 0, "decision": "ask"}),
        ("tool_call_started", call),
        ("task_recovered", {"reason": "the server stopped", "previous_worker": None}),
        ("approval_required", question),
    ]
    for number, (type_, payload) in enumerate(log, start=1):
        event = {"sequence": number, "position": number, "type": type_, "task_id": "t"}
        yield {**event, "created_at": "2026-01-31T09:30:00.000Z", "payload": payload}
