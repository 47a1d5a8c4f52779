"""The files of a workspace on their page: uploaded, opened, edited, replaced, deleted; and attached."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, Page, expect

from agent.text import clean
from tests.support.browser import Browser, Site, Watched, axe
from tests.support.e2e_model import Model
from tests.support.payloads import NAMES

DROP = """([node, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    for (const type of ["dragenter", "dragover", "drop"])
        node.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true, cancelable: true}));
}"""


def open_files(window: Watched, folder: str = "") -> Page:
    (workspace,) = (
        item
        for item in window.site.api("GET", "/api/workspaces")["items"]
        if item["name"] == "demo"
    )
    query = f"?path={folder}" if folder else ""
    page = window.open(f"/workspaces/{workspace['id']}/files{query}")
    expect(page.locator("#crumbs")).to_contain_text("All files")
    return page


def choose(page: Page, name: str, text: str) -> None:
    page.locator("#pick").set_input_files([payload(name, text)])


def payload(name: str, text: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": text.encode()}


def desk(site: Site, name: str) -> Path:
    folder = site.workspace / name
    folder.mkdir(exist_ok=True)
    return folder


def test_files_are_uploaded_opened_edited_and_deleted(window: Watched, site: Site) -> None:
    folder = desk(site, "filing")
    (folder / "a.txt").write_bytes(b"one\r\ntwo\r\n")
    page = open_files(window, "filing")
    choose(page, "b.txt", "picked")
    expect(page.get_by_role("link", name="b.txt", exact=True)).to_be_visible()
    page.evaluate(DROP, [page.locator("#rows").element_handle(), "c.txt", "dropped"])
    expect(page.get_by_role("link", name="c.txt", exact=True)).to_be_visible()
    assert [(folder / name).read_text() for name in ("b.txt", "c.txt")] == ["picked", "dropped"]

    choose(page, "b.txt", "again")
    page.get_by_role("button", name="Keep both").click()
    expect(page.get_by_role("link", name="b-2.txt", exact=True)).to_be_visible()
    choose(page, "b.txt", "anew")
    page.get_by_role("button", name="Replace it").click()
    expect(page.locator("#uploads li").last).to_contain_text("Uploaded.")
    assert (folder / "b.txt").read_text() == "anew"
    choose(page, "bad\u202ename.txt", "x")
    expect(page.locator("#uploads")).to_contain_text("Refused by workspace policy")
    assert axe(page) == []

    page.get_by_role("link", name="a.txt", exact=True).click()
    box = page.get_by_role("textbox", name="Content")
    expect(box).to_have_value("one\ntwo\n")
    assert axe(page) == []
    box.fill("one\nthree\n")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#toasts")).to_contain_text("Saved.")
    assert (folder / "a.txt").read_bytes() == b"one\r\nthree\r\n"
    (folder / "a.txt").write_bytes(b"somebody else's")
    box.fill("mine")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#file-said")).to_contain_text("Nothing was saved.")
    assert (folder / "a.txt").read_bytes() == b"somebody else's"
    page.get_by_role("button", name="Open it as it is now").click()
    expect(box).to_have_value("somebody else's")

    page.get_by_role("button", name="Delete c.txt").click()
    page.locator("#ask").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("link", name="c.txt", exact=True)).to_have_count(0)
    page.get_by_role("button", name="New text file").click()
    page.get_by_label("Name, with its folders").fill("filing/deep/new.md")
    box.fill("# New\n")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#h-file")).to_contain_text("filing/deep/new.md")
    assert (folder / "deep/new.md").read_text() == "# New\n"
    page.get_by_role("link", name="All files", exact=True).click()
    expect(page.get_by_role("link", name="quotes", exact=True)).to_be_visible()
    page.go_back()
    expect(page.get_by_role("link", name="a.txt", exact=True)).to_be_visible()


@pytest.mark.long
def test_hostile_names_and_contents_are_text(window: Watched, site: Site) -> None:
    folder = desk(site, "hostile")
    names = {f"{n} {clean(name)[:60]}".replace("\n", " ") for n, name in enumerate(NAMES)}
    for name in names:
        (folder / name.replace("/", "|")).write_text("<script>document.title='XSS'</script>")
    (folder / "no\nname").write_text("x")
    page = open_files(window, "hostile")
    expect(page.locator("#rows tr")).to_have_count(len(names) + 1)
    assert page.locator("#rows :is(img, script, svg:not(.i), iframe)").count() == 0
    page.locator("#rows a[href*='file=']").first.click()
    expect(page.get_by_role("textbox", name="Content")).to_have_value(
        "<script>document.title='XSS'</script>"
    )
    expect(page.locator("#rows")).to_contain_text("its name cannot be asked for")
    assert "Files · " in page.title()
    assert "XSS" not in page.title()


@pytest.mark.long
def test_a_viewer_reads_and_changes_nothing(browser: Browser, site: Site) -> None:
    (desk(site, "viewed") / "a.txt").write_text("words")
    opened = browser.signed_in(
        site, site.member("violet", "viewer"), viewport={"width": 390, "height": 844}
    )
    page = open_files(opened, "viewed")
    page.get_by_role("link", name="a.txt", exact=True).click()
    expect(page.get_by_role("textbox", name="Content")).to_have_value("words")
    expect(page.get_by_role("textbox", name="Content")).not_to_be_editable()
    for name in ("Upload", "New text file", "Save", "Delete a.txt"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    with page.expect_download() as download:
        page.locator("#file").get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == "words"
    assert axe(page) == []
    assert opened.problems == []
    opened.context.close()


def test_a_file_goes_with_a_goal(window: Watched, site: Site, model: Model) -> None:
    model.script("attached", ["Read."], ["And that."])
    page = window.open("/")
    page.locator("#attach-pick").set_input_files([payload("order.csv", "a;b\n")])
    expect(page.locator("#attached")).to_contain_text("4 bytes")
    assert axe(page) == []
    page.locator("#say").fill("[attached] Sum it up")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")
    expect(page.locator(".turn")).to_have_attribute("data-state", "done")
    assert (site.workspace / "uploads/order.csv").read_bytes() == b"a;b\n"
    session = page.url.rpartition("/")[2]
    (task,) = site.api("GET", f"/api/tasks?session_id={session}")["items"]
    assert task["goal"] == "[attached] Sum it up\n\nAttached files:\n- uploads/order.csv"
    expect(page.locator(".goal .said")).to_have_text("[attached] Sum it up")
    expect(page.locator(".goal .chip")).to_have_text(["uploads/order.csv"])

    page.locator("#attach-pick").set_input_files([payload("order.csv", "c;d\n")])
    expect(page.locator("#attached")).to_contain_text("4 bytes")
    page.locator("#say").fill("[attached] And this")
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn").last).to_contain_text("uploads/order-2.csv")
    expect(page.locator("#attached li")).to_have_count(0)
