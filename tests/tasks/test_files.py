"""The operator's file API: the same guard as tools, no card, everything in the audit."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connections
from django.test import Client

from agent.beneath import best_opener
from agent.paths import refused
from agent.workspace import MAX_WRITE_BYTES, Entry
from tasks import audit
from tasks.api.schemas import FileItem
from tasks.models import Approval, AuditEntry
from tests.support.api import code
from tests.support.jail import make_jail
from tests.support.payloads import PAYLOADS
from tests.support.people import House, bearer, make_house, see

pytestmark = pytest.mark.django_db(transaction=True)  # the audit's writer has its own connection

JAIL = json.loads((Path(__file__).parents[1] / "agent/data/jail_paths.json").read_text())


class Desk:
    """The files of a workspace as one person has them."""

    def __init__(self, house: House, client: Client) -> None:
        self.root = Path(house.workspace.root)
        self._client = client
        self._url = f"/api/workspaces/{house.workspace.pk}/files"

    def folder(self, **query: Any) -> Any:
        return self._client.get(self._url, query)

    def get(self, path: str | bytes) -> Any:
        return self._client.get(f"{self._url}/content", {"path": path})

    def put(self, path: str | bytes, data: bytes, **query: str) -> Any:
        return self._client.put(
            f"{self._url}/content",
            data,
            "application/octet-stream",
            query_params={"path": path, **query},
        )

    def delete(self, path: str | bytes, sha256: str) -> Any:
        query = {"path": path, "sha256": sha256}
        return self._client.delete(f"{self._url}/content", query_params=query)

    def names(self, **query: Any) -> list[str]:
        return [item["name"] for item in self.folder(**query).json()["items"]]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return make_house(tmp_path / "ws")


@pytest.fixture
def desk(house: House) -> Desk:
    return Desk(house, Client(headers=bearer(house.bob)))


def body(response: Any) -> bytes:
    async def streamed() -> bytes:
        return b"".join([block async for block in response.streaming_content])

    return async_to_sync(streamed)() if response.streaming else response.content


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def said() -> list[tuple[str, str, dict[str, Any]]]:
    """What the audit says of files: who, what, details."""
    rows = AuditEntry.objects.filter(action__startswith="file.").order_by("sequence")
    return [(row.by, row.action, json.loads(row.details)) for row in rows]


# ── looking ───────────────────────────────────────────────────────────────────────────────────


def test_a_folder_is_listed_in_pages_folders_first(desk: Desk) -> None:
    for name in ("b.txt", "a.txt", "c.txt"):
        (desk.root / name).write_bytes(b"12345")
    (desk.root / "z").mkdir()
    (desk.root / "y").symlink_to("a.txt")
    (desk.root / ".pilothouse-0123456789abcdef.tmp").write_bytes(b"half")
    first = desk.folder(limit=2).json()
    second = desk.folder(limit=2, cursor=first["next"]).json()
    third = desk.folder(limit=2, cursor=second["next"]).json()

    pages = (first, second, third)
    assert [[item["name"] for item in page["items"]] for page in pages] == [
        ["z", "a.txt"],
        ["b.txt", "c.txt"],
        ["y"],
    ]
    assert third["next"] is None
    assert desk.folder(limit=5).json()["next"] is None  # all of them, and no page more
    assert first["complete"]
    assert first["items"][1] == {
        "name": "a.txt",
        "path": "a.txt",
        "kind": "file",
        "size": 5,
        "modified_at": first["items"][1]["modified_at"],
    }
    assert [page["items"][-1]["kind"] for page in pages] == ["file", "file", "link"]


def test_a_folder_that_is_read_in_pages_may_change_meanwhile(desk: Desk) -> None:
    for number in range(6):
        (desk.root / f"{number}.txt").write_bytes(b"")
    cursor = desk.folder(limit=3).json()["next"]
    (desk.root / "0.txt").unlink()
    (desk.root / "1b.txt").write_bytes(b"")
    (desk.root / "4.txt").unlink()

    assert desk.names(limit=3, cursor=cursor) == ["3.txt", "5.txt"]


def test_more_than_is_looked_at_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.workspace.MAX_LISTED", 3)  # instead of 100,000 files
    for number in range(4):
        (desk.root / f"{number}.txt").write_bytes(b"")
    listed = desk.folder().json()
    assert (len(listed["items"]), listed["complete"], listed["next"]) == (3, False, None)


def test_names_that_are_no_text_are_listed_and_cannot_be_asked_for(desk: Desk) -> None:
    folder = os.fsencode(desk.root)
    for name in (b"\xff\xfe.txt", b"a\nb.txt", b"fine.txt"):
        Path(os.fsdecode(folder + b"/" + name)).write_bytes(b"x")
    items = {item["name"]: item for item in desk.folder(limit=1000).json()["items"]}

    assert items["fine.txt"]["path"] == "fine.txt"
    assert items["a\nb.txt"]["path"] is None
    assert items["\ufffd\ufffd.txt"]["path"] is None
    first = desk.folder(limit=1).json()
    assert [*desk.names(limit=1), *desk.names(limit=9, cursor=first["next"])] == list(items)


def test_a_time_that_no_calendar_has_is_not_shown() -> None:
    for seconds in (1e15, -1e15):
        entry = Entry(path="a", kind="file", size=0, modified=seconds)
        assert FileItem.of(entry).modified_at is None


@pytest.mark.parametrize("cursor", ["x", "!!", "WzEsMl0", "W3RydWUsIv8iXQ", "é"])
def test_a_cursor_of_ones_own_making_is_refused(desk: Desk, cursor: str) -> None:
    assert code(desk.folder(cursor=cursor)) == (400, "invalid")


@pytest.mark.parametrize("size", [0, 5, 3 * 1024 * 1024])
def test_a_download_is_the_file_and_always_an_attachment(desk: Desk, size: int) -> None:
    data = os.urandom(size)
    (desk.root / "out.html").write_bytes(data)
    response = desk.get("out.html")

    assert (response.status_code, body(response)) == (200, data)
    assert response["Content-Disposition"] == 'attachment; filename="out.html"'
    assert response["Content-Type"] == "application/octet-stream"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["ETag"] == f'"{sha256(data)}"'
    assert response["Content-Length"] == str(size)


def test_a_file_that_grows_while_it_is_opened_is_not_sent(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_appends_first(*what: Any) -> Any:
        with (desk.root / "a.log").open("ab") as file:
            file.write(b"more")
        return original(*what)

    original = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", somebody_appends_first
    )  # the moment that a race needs
    (desk.root / "a.log").write_bytes(b"line")
    assert code(desk.get("a.log")) == (409, "changed")


def test_what_is_too_large_to_be_sent_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.files.MAX_DOWNLOAD_BYTES", 3)  # instead of a gigabyte
    (desk.root / "a.txt").write_bytes(b"1234")
    assert code(desk.get("a.txt")) == (413, "too_large")


def test_what_is_not_a_file_is_not_opened(desk: Desk) -> None:
    (desk.root / "sub").mkdir()
    os.mkfifo(desk.root / "fifo")
    assert code(desk.get("nothing.txt")) == (404, "not_found")
    assert code(desk.get("sub")) == (400, "is_folder")
    assert code(desk.get("fifo")) == (400, "refused")
    assert code(desk.folder(path="nothing")) == (404, "not_found")
    (desk.root / "a.txt").write_bytes(b"1")
    assert code(desk.get("a.txt/b.txt")) == (404, "not_found")
    assert code(desk.put("a.txt/b.txt", b"1")) == (400, "refused")


# ── changing ──────────────────────────────────────────────────────────────────────────────────


def test_an_upload_makes_the_file_and_its_folders(house: House, desk: Desk) -> None:
    data = os.urandom(100_000)
    response = desk.put("in/2026/数据.bin", data)

    assert response.status_code == 201
    told = {"path": "in/2026/数据.bin", "size": len(data), "sha256": sha256(data)}
    assert response.json() == told
    assert (desk.root / "in/2026/数据.bin").read_bytes() == data
    assert said() == [
        ("bob", "file.uploaded", {"name": "desk", "before": {}, "after": told, "note": ""})
    ]
    (row,) = AuditEntry.objects.filter(action="file.uploaded")
    assert (row.object_type, row.object_id) == ("workspace", str(house.workspace.pk))
    assert audit.verify().problem == ""


def test_what_is_there_is_replaced_only_as_it_was_seen(desk: Desk) -> None:
    (desk.root / "a.txt").write_bytes(b"old")
    there = desk.put("a.txt", b"new")
    assert code(there) == (409, "exists")
    assert there.json()["error"]["details"] == {"sha256": sha256(b"old"), "size": 3}
    assert code(desk.put("a.txt", b"new", overwrite=sha256(b"other"))) == (409, "changed")
    assert code(desk.put("b.txt", b"new", overwrite=sha256(b"old"))) == (409, "changed")
    assert code(desk.put("a.txt", b"new", overwrite="yes")) == (400, "invalid")
    assert (desk.root / "a.txt").read_bytes() == b"old"
    assert said() == []

    replaced = desk.put("a.txt", b"new", overwrite=sha256(b"old"))
    assert (replaced.status_code, (desk.root / "a.txt").read_bytes()) == (200, b"new")
    ((_, action, details),) = said()
    assert action == "file.replaced"
    assert details["before"]["sha256"] == sha256(b"old")
    assert details["after"]["sha256"] == sha256(b"new")


def test_of_many_uploads_of_one_new_name_one_is_there_and_the_others_hear_it(
    house: House, desk: Desk
) -> None:
    token = bearer(house.bob)

    def upload(data: bytes) -> Any:
        try:
            return Desk(house, Client(headers=token)).put("new/a.txt", data)
        finally:
            connections.close_all()  # this thread's

    sent = [bytes([letter]) * 100 for letter in b"abcdefghijkl"]
    with ThreadPoolExecutor(len(sent)) as pool:
        responses = list(pool.map(upload, sent))

    (made,) = [place for place, each in enumerate(responses) if each.status_code == 201]
    assert (desk.root / "new/a.txt").read_bytes() == sent[made]
    others = [each for place, each in enumerate(responses) if place != made]
    assert {code(each) for each in others} == {(409, "exists")}
    there = {"sha256": sha256(sent[made]), "size": 100}
    assert all(each.json()["error"]["details"] == there for each in others)
    assert audit.verify().problem == ""


def test_a_file_is_deleted_only_as_it_was_seen(desk: Desk) -> None:
    (desk.root / "a.txt").write_bytes(b"old")
    assert code(desk.delete("a.txt", sha256(b"other"))) == (409, "changed")
    assert code(desk.delete("b.txt", sha256(b"old"))) == (404, "not_found")
    assert desk.delete("a.txt", sha256(b"old")).status_code == 204

    assert desk.names() == []
    ((by, action, details),) = said()
    assert (by, action, details["after"]) == ("bob", "file.deleted", {})
    assert details["before"] == {"path": "a.txt", "size": 3, "sha256": sha256(b"old")}


def test_a_change_that_fails_behind_its_entry_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_writes_first(change: audit.Change) -> None:
        original(change)
        if change.action == "file.uploaded":
            (desk.root / "a.txt").write_bytes(b"theirs")

    original = audit.note
    monkeypatch.setattr(audit, "note", somebody_writes_first)  # the moment that a race needs
    response = desk.put("a.txt", b"mine")

    assert code(response) == (409, "exists")
    assert response.json()["error"]["details"] == {"sha256": sha256(b"theirs"), "size": 6}
    assert (desk.root / "a.txt").read_bytes() == b"theirs"
    assert [action for _, action, _ in said()] == ["file.uploaded", "file.unchanged"]


def test_a_link_that_a_place_became_is_not_followed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def becomes_a_link(change: audit.Change) -> None:
        original(change)
        if change.action == "file.uploaded":
            (desk.root / "a.txt").symlink_to("b.txt")

    original = audit.note
    monkeypatch.setattr(audit, "note", becomes_a_link)  # the moment that a race needs
    assert code(desk.put("a.txt", b"mine")) == (400, "refused")
    assert not (desk.root / "b.txt").exists()


def test_an_upload_has_a_size(desk: Desk) -> None:
    assert desk.put("fits.bin", b"x" * MAX_WRITE_BYTES).status_code == 201
    assert code(desk.put("big.bin", b"x" * (MAX_WRITE_BYTES + 1))) == (413, "too_large")
    assert desk.names() == ["fits.bin"]


@pytest.mark.parametrize("path", [
    "", ".", "a/", "/etc/x", "../x", "a\\b", "a\0b", b"a\xffb",
    "a\u202eb.txt", "e\u0301.txt", "a\u200bb", ".pilothouse-0123456789abcdef.tmp", "x" * 256, "C:x",
])  # fmt: skip
def test_a_name_that_is_refused_says_why(desk: Desk, path: str | bytes) -> None:
    response = desk.put(path, b"x")
    assert code(response) == (400, "refused")
    message = response.json()["error"]["message"]
    assert message.startswith(str(refused("")).partition(":")[0])
    assert list(desk.root.iterdir()) == []


def test_a_full_disk_is_a_sentence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agent.directory.os.fsync", full)  # nothing smaller fills a disk
    response = desk.put("a.txt", b"x")
    assert code(response) == (409, "failed")
    assert "No space left" in response.json()["error"]["message"]
    assert desk.names() == []


# ── the guard ─────────────────────────────────────────────────────────────────────────────────


def test_every_path_of_the_jail_case_stays_inside(tmp_path: Path) -> None:
    (tmp_path / "jail").mkdir()
    jail = make_jail(tmp_path / "jail", best_opener())
    house = make_house(jail.root)
    desk = Desk(house, Client(headers=bearer(house.alice)))
    outside = [jail.root.parent / "ws.outside", jail.root.parent / "ws-evil"]

    def beyond() -> dict[Path, bytes]:
        return {file: file.read_bytes() for place in outside for file in place.rglob("*")}

    before = beyond()
    for name, verdict in JAIL:
        spelled = name.replace("{WSNAME}", "ws").replace("{WS}", str(jail.root))
        path = spelled.encode("utf-8", "surrogatepass")  # as a client can send it
        seen, written = desk.get(path), desk.put(path, b"MINE")
        if written.status_code == 409:  # it is there, and may be replaced
            written = desk.put(
                path, b"MINE", overwrite=written.json()["error"]["details"]["sha256"]
            )
        answers = [seen, written, desk.folder(path=path), desk.delete(path, sha256(b"MINE"))]
        assert beyond() == before, path
        for answer in answers:
            assert answer.status_code in (200, 201, 204, 400, 404, 409), path
            if answer.status_code >= 400:
                assert str(tmp_path) not in answer.content.decode(), path
        if seen.status_code == 200:
            assert body(seen) in (b"AAA\n", b"BBB\n", b"HARD\n", b"MINE"), path
        if verdict == "no":
            assert seen.status_code >= 400, path
            assert written.status_code >= 400, path


def test_hostile_names_are_text_everywhere(desk: Desk) -> None:
    for number, payload in enumerate(PAYLOADS):
        name = f"{number} {payload}".replace("/", "|")[:60]
        response = desk.put(name, b"x")
        if response.status_code != 201:
            assert code(response) == (400, "refused")
            continue
        got = desk.get(name)
        assert body(got) == b"x"
        assert got["Content-Disposition"].startswith("attachment; filename")
        assert name in desk.names(limit=1000)


# ── who ───────────────────────────────────────────────────────────────────────────────────────


def test_viewers_look_and_strangers_see_nothing(house: House) -> None:
    (Path(house.workspace.root) / "a.txt").write_bytes(b"a")
    for user, looks, works in (
        (house.alice, 200, 201),
        (house.dora, 200, 201),
        (house.bob, 200, 201),
        (house.vera, 200, 404),
        (house.charlie, 404, 404),
    ):
        desk = Desk(house, Client(headers=bearer(user)))
        name = f"{user.username}.txt"
        assert (desk.folder().status_code, desk.get("a.txt").status_code) == (looks, looks)
        assert desk.put(name, b"x").status_code == works
        assert desk.delete(name, sha256(b"x")).status_code == (204 if works == 201 else 404)
    assert {by for by, _, _ in said()} == {"alice", "dora", "bob"}


def test_a_token_needs_its_scope(house: House) -> None:
    reader = Desk(house, Client(headers=bearer(house.alice, scopes=["read"])))
    writer = Desk(house, Client(headers=bearer(house.alice, scopes=["write"])))
    assert reader.folder().status_code == 200
    assert code(reader.put("a.txt", b"x")) == (403, "scope")
    assert code(reader.delete("a.txt", sha256(b"x"))) == (403, "scope")
    assert writer.put("a.txt", b"x").status_code == 201
    assert code(writer.get("a.txt")) == (403, "scope")


def test_a_cookie_needs_the_csrf_token(house: House) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.alice)
    assert code(Desk(house, client).put("a.txt", b"x")) == (403, "csrf")
    client.cookies["csrftoken"] = "c" * 32
    client.defaults["HTTP_X_CSRFTOKEN"] = "c" * 32
    assert Desk(house, client).put("a.txt", b"x").status_code == 201


def test_a_question_about_a_file_that_is_replaced_is_asked_again(house: House) -> None:
    desk = Desk(house, Client(headers=bearer(house.alice)))
    (desk.root / "a.txt").write_bytes(b"old")
    see(house.approval)
    assert desk.put("a.txt", b"new", overwrite=sha256(b"old")).status_code == 200
    reply = Client(headers=bearer(house.alice)).post(
        f"/api/approvals/{house.approval.pk}/resolve",
        {"decision": "approve"},
        "application/json",
    )

    assert code(reply) == (409, "stale")
    house.approval.refresh_from_db()
    assert house.approval.status == Approval.Status.STALE
    assert (desk.root / "a.txt").read_bytes() == b"new"
