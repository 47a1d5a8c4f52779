"""Files that runs made: downloaded as they were made, or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from tasks import artifacts
from tasks.downloads import BLOCK_BYTES, SMALL_BYTES, Download, Torn, file_name
from tasks.errors import Conflict
from tasks.models import Artifact
from tests.support.people import House, bearer

pytestmark = pytest.mark.django_db(transaction=True)


def made(
    house: House, path: str = "report.md", data: bytes = b"# Report\n", **fields: Any
) -> Artifact:
    file = Path(house.workspace.root) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    return recorded(house, path, data, **fields)


def recorded(house: House, path: str, data: bytes = b"", **fields: Any) -> Artifact:
    values = {
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "media_type": "text/markdown",
    } | fields
    return Artifact.objects.create(task=house.task, path=path, **values)


async def download(user: User, artifact: Artifact) -> tuple[int, dict[str, str], bytes]:
    response = await ask(user, artifact)
    if not response.streaming:
        return response.status_code, dict(response.headers), response.content
    body = b"".join([block async for block in response.streaming_content])
    return response.status_code, dict(response.headers), body


async def ask(user: User, artifact: Artifact) -> Any:
    headers = await sync_to_async(bearer)(user)
    return await AsyncClient().get(f"/api/artifacts/{artifact.pk}", headers=headers)


def page(user: User, artifact: Artifact) -> Any:
    client = Client()
    client.force_login(user)
    return client.get(f"/artifacts/{artifact.pk}/view")


@pytest.mark.parametrize("size", [5 * BLOCK_BYTES + 17, 4 * BLOCK_BYTES, 5])
async def test_a_download_is_the_file_and_always_an_attachment(house: House, size: int) -> None:
    data = os.urandom(size)
    artifact = await sync_to_async(made)(house, "out/table.html", data, media_type="text/html")
    status, headers, body = await download(house.vera, artifact)

    assert (status, body) == (200, data)
    assert headers["Content-Disposition"] == 'attachment; filename="table.html"'
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["Content-Length"] == str(len(data))
    assert "no-store" in headers["Cache-Control"]


async def test_an_empty_file_can_be_downloaded(house: House) -> None:
    status, _, body = await download(house.alice, await sync_to_async(made)(house, data=b""))
    assert (status, body) == (200, b"")


@pytest.mark.parametrize("spoil", ["other", "same size", "gone", "folder", "link", "fifo"])
async def test_what_is_not_the_file_any_more_is_not_given_out(
    house: House, tmp_path: Path, spoil: str
) -> None:
    artifact = await sync_to_async(made)(house, data=b"mine")
    file = Path(house.workspace.root) / artifact.path
    file.unlink()
    secret = tmp_path / "secret"
    secret.write_bytes(b"mine")
    match spoil:
        case "other":
            file.write_bytes(b"somebody else's")
        case "same size":
            file.write_bytes(b"ours")
        case "folder":
            file.mkdir()
        case "link":
            file.symlink_to(secret)
        case "fifo":
            os.mkfifo(file)
    status, _, body = await download(house.alice, artifact)

    assert status == 409
    assert b'"code":"changed"' in body
    assert str(tmp_path).encode() not in body
    assert (await sync_to_async(page)(house.alice, artifact)).status_code == 409


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "/etc/passwd",
        "a/../../secret",
        "..\\secret",
        "",
        ".",
        "a\x00",
        "x" * 300,
        "~/x",
        "%2e%2e/secret",
        "file:///etc/passwd",
        "d/" * 500 + "x",
    ],
)
async def test_a_row_with_a_strange_path_leads_nowhere(
    house: House, tmp_path: Path, path: str
) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    artifact = await sync_to_async(recorded)(house, "placeholder", b"x")
    artifact.path = path
    with pytest.raises(Conflict):
        await sync_to_async(artifacts.open_unchanged)(artifact)


async def test_a_file_that_changes_while_it_is_sent_never_arrives_whole(house: House) -> None:
    data = os.urandom(4 * BLOCK_BYTES)
    artifact = await sync_to_async(made)(house, "big.bin", data)
    opened = await sync_to_async(artifacts.open_unchanged)(artifact)
    blocks = opened.blocks()
    received = [next(blocks)]
    with (Path(house.workspace.root) / "big.bin").open("r+b") as file:
        file.seek(3 * BLOCK_BYTES)
        file.write(b"another")
    with pytest.raises(Torn):
        received.extend(blocks)

    assert sum(map(len, received)) < len(data)
    assert opened.source.closed


async def test_of_a_file_that_grows_no_more_is_sent_than_was_said(house: House) -> None:
    artifact = await sync_to_async(made)(house, "big.bin", os.urandom(4 * BLOCK_BYTES))
    opened = await sync_to_async(artifacts.open_unchanged)(artifact)
    blocks = opened.blocks()
    received = [next(blocks)]
    with (Path(house.workspace.root) / "big.bin").open("ab") as file:
        file.write(b"HTTP/1.1 200 OK\r\n" * BLOCK_BYTES)
    with pytest.raises(Torn):
        received.extend(blocks)

    assert sum(map(len, received)) < artifact.size
    assert opened.source.closed


async def test_a_reader_who_leaves_closes_the_file(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = await sync_to_async(made)(house, "big.bin", os.urandom(6 * BLOCK_BYTES))
    opened: list[Download] = []

    def remember(row: Artifact) -> Download:
        opened.append(original(row))
        return opened[0]

    original = artifacts.open_unchanged
    monkeypatch.setattr(artifacts, "open_unchanged", remember)  # to look at its file
    response = await ask(house.alice, artifact)
    await anext(aiter(response.streaming_content))
    assert not opened[0].source.closed
    await sync_to_async(response.close)()

    assert opened[0].source.closed


@pytest.mark.parametrize(
    ("path", "name", "header"),
    [
        ("a/b/report.md", "report.md", 'attachment; filename="report.md"'),
        ('we"ird.md', 'we"ird.md', 'attachment; filename="we\\"ird.md"'),
        ("a\r\nSet-Cookie: x.md", "a__Set-Cookie: x.md", None),
        ("报价.xlsx", "报价.xlsx", "attachment; filename*=utf-8''%E6%8A%A5%E4%BB%B7.xlsx"),
        ("gpj.\u202etxt.exe", "gpj._txt.exe", None),
        ("..\\..\\x.exe", "x.exe", None),
        ("a/", "file", None),
    ],
)
async def test_weird_names_are_safe_in_the_header(
    house: House, path: str, name: str, header: str | None
) -> None:
    assert file_name(path) == name
    artifact = await sync_to_async(made)(house, "real.md")
    await Artifact.objects.filter(pk=artifact.pk).aupdate(path="real.md")
    if header is None:
        return
    (Path(house.workspace.root) / path).parent.mkdir(parents=True, exist_ok=True)
    (Path(house.workspace.root) / path).write_bytes(b"# Report\n")
    await Artifact.objects.filter(pk=artifact.pk).aupdate(path=path)
    status, headers, _ = await download(house.alice, artifact)
    assert (status, headers["Content-Disposition"]) == (200, header)


def test_the_files_of_a_task_are_listed_in_their_order(house: House) -> None:
    first, second = made(house, "b.md"), made(house, "a.md")
    client = Client(headers=bearer(house.bob))
    listed = client.get(f"/api/tasks/{house.task.pk}/artifacts").json()

    assert [item["path"] for item in listed["items"]] == ["b.md", "a.md"]
    assert listed["items"][0] == {
        "id": str(first.pk),
        "task_id": str(house.task.pk),
        "path": "b.md",
        "size": 9,
        "sha256": second.sha256,
        "media_type": "text/markdown",
        "created_at": listed["items"][0]["created_at"],
        "state": "unchanged",
        "url": f"/api/artifacts/{first.pk}",
        "view_url": f"/artifacts/{first.pk}/view",
    }


# ── the page ──────────────────────────────────────────────────────────────────────────────────


def test_markdown_is_shown_rendered_and_harmless(house: House) -> None:
    text = "# Quotes\n\n<img src=x onerror=document.title='XSS'>\n"
    shown = page(house.vera, made(house, "out/report.md", text.encode()))

    assert shown.status_code == 200
    body = shown.content.decode()
    assert "<h2>Quotes</h2>" in body
    assert "<img" not in body
    assert "&lt;img src=x onerror=document.title='XSS'&gt;" in body


def test_other_text_is_shown_as_written_and_the_rest_is_for_download(house: House) -> None:
    table = page(house.alice, made(house, "a.csv", b"a;<b>\n", media_type="text/csv"))
    assert '<pre class="plain">a;&lt;b&gt;' in table.content.decode()
    for path, data, media_type in (
        ("a.pdf", b"%PDF", "application/pdf"),
        ("page.svg", b"<svg onload=alert(1)>", "image/svg+xml"),
        ("bad.txt", b"\xff\xfe\x00", "text/plain"),
        ("huge.txt", b"x" * (1024 * 1024 + 1), "text/plain"),
    ):
        body = page(house.alice, made(house, path, data, media_type=media_type)).content.decode()
        assert "Download it to open it." in body
        assert "onload" not in body


def test_a_hostile_name_does_nothing_on_the_page(house: House) -> None:
    body = page(house.alice, made(house, "<img src=x onerror=1>.md")).content.decode()
    assert "<img" not in body
    assert "&lt;img src=x onerror=1&gt;.md" in body


def test_strangers_see_no_page(house: House) -> None:
    artifact = made(house)
    assert page(house.charlie, artifact).status_code == 404
    assert Client().get(f"/artifacts/{artifact.pk}/view").status_code == 302


def test_the_list_says_what_became_of_each_file(house: House) -> None:
    folder = Path(house.workspace.root)
    large = SMALL_BYTES + 1
    for path in ("kept.md", "rewritten.md", "undone.md"):
        made(house, path)
    made(house, "grown.bin", bytes(large))
    (folder / "rewritten.md").write_bytes(b"# Other!\n")
    (folder / "undone.md").unlink()
    (folder / "grown.bin").write_bytes(bytes(large + 1))

    listed = Client(headers=bearer(house.vera)).get(f"/api/tasks/{house.task.pk}/artifacts").json()
    assert {item["path"]: item["state"] for item in listed["items"]} == {
        "kept.md": "unchanged",
        "rewritten.md": "changed",
        "undone.md": "gone",
        "grown.bin": "changed",
    }
    gone = Artifact.objects.get(path="undone.md")
    assert b" download>" not in page(house.vera, gone).content
