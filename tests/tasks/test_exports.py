"""Signed exports, checked as an outsider would: by one file and plain Python, without our server."""

from __future__ import annotations

import getpass
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import AsyncClient, Client
from django.utils import timezone

import verify_export
from agent.events import AssistantMessageAdded, BudgetWarning
from config.env import ROOT
from tasks import audit, events, exports, pruning
from tasks.conf import conf
from tasks.models import AuditEntry, Session, Task
from tasks.writer import writer
from tests.support.people import bearer
from tests.support.rows import make_session, make_task, make_user, make_workspace

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("stopped_writer"),
]

ODD = 'a "quoted" \\ text\n\u2028 ünd 𠮷 {"payload":{},"hash":"' + "0" * 64 + '"}'
Files = dict[str, bytes]


@pytest.fixture
def session() -> Session:
    made = make_session(make_workspace(make_user("alice")), title="Quotes")
    for _ in range(2):
        append(make_task(made), 5)
    make_task(made, first_position=99)
    return made


def append(task: Task, count: int) -> None:
    def command(step: int) -> None:
        warning = BudgetWarning(step=step, which="steps", used=step, limit=12)
        said = AssistantMessageAdded(step=step, block_id="b", text=ODD)
        events.append(task.pk, [warning, said])

    for step in range(count):
        writer.run_sync(partial(command, step))


def files_of(export: exports.Export) -> Files:
    with export.file, zipfile.ZipFile(export.file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return path


def checked(files: Files, *, public_key: str = "", audit_key: bytes = b"") -> list[str]:
    """What the verifier says, in this process."""
    with zipfile.ZipFile(write_in_memory(files)) as archive:
        key = bytes.fromhex(public_key) if public_key else None
        return list(verify_export.check(archive, key, audit_key or None))


def write_in_memory(files: Files) -> io.BytesIO:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return body


def test_it_is_checked_with_plain_python_and_nothing_of_ours(session, tmp_path):
    """In an empty folder, isolated from every package that is installed."""
    shutil.copy(ROOT / "verify_export.py", tmp_path / "check.py")
    path = write(tmp_path / "e.zip", files_of(exports.of_session(session, "alice")))

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", "check.py", str(path), *more]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    keys = ("--public-key", exports.public_key(), "--audit-key", conf().audit_key.hex())
    for arguments in ((), keys):
        done = run(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert done.stdout.endswith("\nwhole\n")
        assert f"session {session.pk}, exported " in done.stdout
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    assert run("--public-key", other).returncode == 1
    path.write_bytes(b"no zip file")
    assert run().returncode == 2
    assert run("--public-key", "xyz").returncode == 2


def test_the_manifest_says_what_is_in_it(session):
    files = files_of(exports.of_session(session, "alice"))
    manifest = json.loads(files["manifest.json"])
    heads = list(
        session.tasks.order_by("first_position").values_list("pk", "last_sequence", "last_hash")
    )
    assert [(c["id"], c["count"], c["head"]) for c in manifest["chains"]] == [
        (str(pk), count, head) for pk, count, head in heads
    ]
    assert [count for _, count, _ in heads].count(10) == 2
    assert (manifest["what"], manifest["made_by"]) == ("session", "alice")
    Ed25519PrivateKey.from_private_bytes(conf().signing_key).public_key().verify(
        files["manifest.sig"], files["manifest.json"]
    )
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.by, entry.object_id) == (
        "session.exported",
        "alice",
        str(session.pk),
    )


def edited(name: str, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Files], Files]:
    def tamper(files: Files) -> Files:
        file = next(each for each in files if each.startswith(name))
        lines = files[file].splitlines(keepends=True)
        return {**files, file: b"".join(change(lines))}

    return tamper


def in_manifest(**changes: Any) -> Callable[[Files], Files]:
    def tamper(files: Files) -> Files:
        manifest = json.loads(files["manifest.json"]) | changes
        return {**files, "manifest.json": json.dumps(manifest).encode()}

    return tamper


def signed_by_somebody_else(files: Files) -> Files:
    key = Ed25519PrivateKey.generate()
    own = key.public_key().public_bytes_raw().hex()
    body = in_manifest(public_key=own, made_by="mallory")(files)["manifest.json"]
    return {**files, "manifest.json": body, "manifest.sig": key.sign(body)}


TAMPERINGS: dict[str, tuple[Callable[[Files], Files], str]] = {
    "payload": (edited("tasks/", lambda x: [*x[:3], x[3].replace(b'"step":1', b'"step":7'), *x[4:]]), "number 4 does not match"),
    "reordered": (edited("tasks/", lambda x: [x[0], x[2], x[1], *x[3:]]), "number 2 is missing or misplaced"),
    "deleted": (edited("tasks/", lambda x: [*x[:2], *x[3:]]), "number 3 is missing or misplaced"),
    "cut off": (edited("tasks/", lambda x: x[:-1]), "ends at 9"),
    "added": (edited("tasks/", lambda x: [*x, x[-1]]), "number 11 is missing or misplaced"),
    "no line end": (edited("tasks/", lambda x: [*x[:-1], x[-1][:-1]]), "line 10 is not an entry"),
    "not JSON": (edited("tasks/", lambda x: [b"nonsense\n", *x[1:]]), "line 1 is not an entry"),
    "a file more": (lambda files: {**files, "more.txt": b"x"}, "'more.txt' is not in the manifest"),
    "manifest": (in_manifest(made_by="mallory"), "the signature does not fit"),
    "another key": (signed_by_somebody_else, "another key than the one you gave"),
    "signature": (lambda files: {**files, "manifest.sig": bytes(64)}, "the signature does not fit"),
    "short signature": (lambda files: {**files, "manifest.sig": b""}, "the signature does not fit"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERINGS)
def test_what_was_changed_is_named(session, how):
    tamper, said = TAMPERINGS[how]
    files = files_of(exports.of_session(session, "alice"))
    trusted, audit_key = exports.public_key(), conf().audit_key
    assert checked(files, public_key=trusted, audit_key=audit_key) == []
    problems = checked(tamper(files), public_key=trusted, audit_key=audit_key)
    assert any(said in problem for problem in problems), problems
    assert checked(tamper(files), public_key=exports.public_key()), (
        "seen without the audit key, too"
    )


def test_what_was_pruned_is_said_and_the_rest_is_checked(session):
    Session.objects.update(updated_at=timezone.now() - timedelta(days=100))
    Task.objects.filter(last_sequence=0).delete()
    Task.objects.update(status="completed")
    assert sum(gone for _, gone in pruning.prune(timezone.now())) == 20
    first = session.tasks.order_by("first_position").first()
    append(first, 1)
    files = files_of(exports.of_session(session, "alice"))
    manifest = json.loads(files["manifest.json"])
    assert [(c["pruned"], c["count"], c["problem"]) for c in manifest["chains"]] == [
        (10, 12, ""),
        (10, 10, ""),
    ]
    keys = conf().audit_key
    assert checked(files, audit_key=keys) == []
    cut = edited(f"tasks/{first.pk}", lambda x: x[1:])(files)
    assert any("number 11 is missing" in problem for problem in checked(cut, audit_key=keys))


def test_a_missing_file_is_named(session):
    files = files_of(exports.of_session(session, "alice"))
    name = next(each for each in files if each.startswith("tasks/"))
    del files[name]
    assert [f"{name} is missing" in problem for problem in checked(files)] == [True]


def test_a_chain_that_is_broken_on_the_server_is_exported_and_said_to_be(session):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tasks_taskevent SET payload = '{}' WHERE sequence = 6")
    task = session.tasks.order_by("first_position").first()
    files = files_of(exports.of_task(task, "alice"))
    assert len(files[f"tasks/{task.pk}.jsonl"].splitlines()) == 10
    (problem,) = checked(files)
    assert "broken on the server already: sequence 6 does not match" in problem
    assert any(
        "number 6 does not match" in each for each in checked(files, audit_key=conf().audit_key)
    )


def test_the_audit_is_exported_whole():
    for name in ("plain", ODD):
        audit.note(audit.Change(action="thing.made", by=name, object_type="thing", name=name))
    files = files_of(exports.of_audit("alice"))
    assert len(files["audit.jsonl"].splitlines()) == 2
    assert checked(files, audit_key=conf().audit_key) == []
    forged = edited("audit", lambda x: [x[0].replace(b"plain", b"forged"), *x[1:]])(files)
    assert "number 1 does not match" in " ".join(checked(forged, audit_key=conf().audit_key))


def test_no_export_holds_a_secret(session, settings):
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, llm_api_key="CANARY-LLM")
    make_user("bob", password="CANARY-PASSWORD")
    headers = bearer(session.owner)
    made = [exports.of_session(session, "alice"), exports.of_audit("alice")]
    body = b"".join(content for each in made for content in files_of(each).values()).decode(
        "utf-8", "replace"
    )
    assert "CANARY" not in body
    assert headers["Authorization"].partition(" ")[2] not in body
    for key in (
        conf().audit_key,
        conf().secrets_key,
        conf().signing_key,
        settings.SECRET_KEY.encode(),
    ):
        assert key.hex() not in body
        assert key.decode("latin-1") not in body


async def body_of(answer: Any) -> bytes:
    if not answer.streaming:
        return bytes(answer.content)
    return b"".join([block async for block in answer.streaming_content])


@pytest.mark.parametrize("small", [0, 10**9])
async def test_over_http_for_whoever_may_read_it(session, monkeypatch, small):
    monkeypatch.setattr("tasks.api.exports.SMALL_BYTES", small)
    headers = await sync_to_async(bearer)(session.owner)
    stranger = await sync_to_async(lambda: bearer(make_user("charlie")))()
    task = await session.tasks.order_by("first_position").afirst()
    for url in (f"/api/tasks/{task.pk}/export", f"/api/sessions/{session.pk}/export"):
        assert (await AsyncClient().get(url, headers=stranger)).status_code == 404
        answer: Any = await AsyncClient().get(url, headers=headers)
        assert answer["Content-Type"] == "application/zip"
        assert answer["Content-Disposition"].startswith("attachment; filename=")
        assert answer["X-Content-Type-Options"] == "nosniff"
        body = await body_of(answer)
        assert len(body) == int(answer["Content-Length"])
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            assert list(verify_export.check(archive, None, conf().audit_key)) == []


async def test_in_the_admin(session):
    admin = await sync_to_async(make_user)("admin", is_staff=True, is_superuser=True)
    reader = await sync_to_async(make_user)("reader", is_staff=True)
    task = await session.tasks.order_by("first_position").afirst()
    for url in (
        f"/admin/tasks/task/{task.pk}/signed/",
        f"/admin/tasks/session/{session.pk}/signed/",
        "/admin/tasks/auditentry/signed/",
    ):
        client = AsyncClient()
        await sync_to_async(client.force_login)(reader)
        assert (await client.get(url)).status_code == 403
        await sync_to_async(client.force_login)(admin)
        answer: Any = await client.get(url)
        body = await body_of(answer)
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            assert list(verify_export.check(archive, None, conf().audit_key)) == []


def test_the_pages_of_the_admin_offer_it(session):
    client = Client()
    client.force_login(make_user("admin", is_staff=True, is_superuser=True))
    for page in (
        f"session/{session.pk}/change",
        f"task/{session.tasks.first().pk}/change",
        "auditentry",
    ):
        assert "signed/" in client.get(f"/admin/tasks/{page}/").content.decode()
    assert exports.public_key() in client.get("/admin/tasks/auditentry/").content.decode()


def test_by_command(session, tmp_path, capsys):
    out = io.StringIO()
    call_command("export_log", "--public-key", stdout=out)
    assert out.getvalue().strip() == exports.public_key()
    task = session.tasks.order_by("first_position").first()
    for what in (["--task", str(task.pk)], ["--session", str(session.pk)], ["--audit"]):
        target = tmp_path / f"{what[0]}.zip"
        call_command("export_log", *what, "--to", str(target), stdout=out)
        assert verify_export.main([str(target), "--audit-key", conf().audit_key.hex()]) == 0
        assert f"by {getpass.getuser()} (command line)\n" in capsys.readouterr().out
        with pytest.raises(CommandError, match="exists"):
            call_command("export_log", *what, "--to", str(target), stdout=out)
    exporters = AuditEntry.objects.filter(action__endswith=".exported").values_list("by", flat=True)
    assert set(exporters) == {f"{getpass.getuser()} (command line)"}
    nobody = "00000000-0000-0000-0000-000000000001"
    for option in ("--task", "--session"):
        with pytest.raises(CommandError, match="There is no") as caught:
            call_command("export_log", option, nobody)
        assert caught.value.returncode == 2


def test_the_server_is_named_where_somebody_named_it(session, settings):
    told = {}
    for given in (frozenset(), frozenset({"PILOTHOUSE_PUBLIC_URL"})):
        settings.PILOTHOUSE = replace(conf(), given=given, public_url="https://ph.example.org")
        files = files_of(exports.of_session(session, "alice"))
        assert checked(files) == []
        told[given] = json.loads(files["manifest.json"])["server"]
    assert list(told.values()) == ["", "https://ph.example.org"]


def test_a_forger_writes_nothing_to_the_terminal(session, tmp_path, capsys):
    hiding = in_manifest(made_by="alice\r\nwhole\x1b[8m\u202e\ud800")
    path = write(tmp_path / "e.zip", hiding(files_of(exports.of_session(session, "alice"))))
    assert verify_export.main([str(path), "--public-key", exports.public_key()]) == 1
    lines = capsys.readouterr().out.split("\n")
    assert "whole" not in lines
    assert all(line.isprintable() for line in lines)
    assert "by alice\\r\\nwhole\\x1b[8m\\u202e\\ud800" in lines[0]


def test_a_number_that_is_none_is_named(session):
    endless = edited(
        "tasks/", lambda x: [x[0].replace(b":1,", b":%b1," % (b"0" * 5000), 1), *x[1:]]
    )
    problems = checked(endless(files_of(exports.of_session(session, "alice"))))
    assert any("number 1 is missing or misplaced" in problem for problem in problems)


def test_another_packing_is_refused_in_words(tmp_path, capsys):
    path = tmp_path / "e.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("manifest.json", bytes(range(256)))
    spoilt = bytearray(path.read_bytes())
    spoilt[60:120] = bytes(60)
    path.write_bytes(spoilt)
    assert verify_export.main([str(path)]) == 2
    assert "cannot be read" in capsys.readouterr().err


# ── the verifier's own arithmetic ─────────────────────────────────────────────────────────────


def test_signatures_are_judged_like_the_library_judges_them():
    public = b""
    for number in range(8):
        key = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
        public, message = key.public_key().public_bytes_raw(), bytes(range(number * 7))
        signature = key.sign(message)
        assert verify_export.verify(public, message, signature)
        assert not verify_export.verify(public, message + b".", signature)
        for place in (0, 31, 32, 63):
            spoilt = bytes(b ^ (at == place) for at, b in enumerate(signature))
            assert not verify_export.verify(public, message, spoilt)
        scalar = int.from_bytes(signature[32:], "little") + verify_export.ORDER
        twin = signature[:32] + scalar.to_bytes(32, "little")
        assert not verify_export.verify(public, message, twin), "the same signature in other words"
    assert not verify_export.verify(b"\xff" * 32, b"", bytes(64))
    assert not verify_export.verify(public, b"", b"")


@pytest.mark.parametrize("manifest", [b"", b"[]", b"{}", b"\xff", b'{"format":"pilothouse-export/2"}', b"[" * 100_000])  # fmt: skip
def test_what_is_no_export_is_refused_in_words(tmp_path, manifest, capsys):
    path = write(tmp_path / "e.zip", {"manifest.json": manifest, "manifest.sig": bytes(64)})
    assert verify_export.main([str(path)]) == 2
    assert "cannot be read" in capsys.readouterr().err
