"""Signed exports: the log of a task, of a session, or the audit, for somebody without this server.

A zip file: for each hash chain one file of JSON lines, exactly as hashed; `manifest.json` with
their numbers, heads and digests; `manifest.sig`, the raw Ed25519 signature over the manifest's
bytes. `verify_export.py` in the project's root checks it anywhere. HMAC chains prove to whoever has
the secret key; the signature proves to everybody. What is exported is what the log holds: keys and
tokens are in no event and no audit entry.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZipFile

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings
from django.utils import timezone

from tasks import audit, chain, events
from tasks.canonical import canonical_json
from tasks.conf import conf
from tasks.models import Session, Task

FORMAT = "pilothouse-export/1"
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
IN_MEMORY = 8 * 1024 * 1024
"""A larger export is built in a temporary file."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A finished export. Whoever has it closes the file."""

    name: str
    file: IO[bytes]
    size: int


def of_task(task: Task, by: str) -> Export:
    """Reads the whole log: call it off the event loop."""
    return _build("task", str(task.pk), by, lambda archive: [_task(archive, task)])


def of_session(session: Session, by: str) -> Export:
    """All tasks of the session, in their order."""
    tasks = session.tasks.order_by("first_position", "created_at", "pk")
    return _build(
        "session", str(session.pk), by, lambda archive: [_task(archive, task) for task in tasks]
    )


def of_audit(by: str) -> Export:
    return _build("audit", "", by, lambda archive: [_audit(archive)])


def public_key() -> str:
    """What others check signatures with, in hex."""
    return _key().public_key().public_bytes_raw().hex()


def line(row: events.Row) -> bytes:
    """`payload` stands in it character by character as it was hashed; see `tasks.events.appending`."""
    return (
        f'{{"sequence":{row.sequence},"position":{row.position},"type":"{row.type}",'
        f'"task_id":"{row.task_id}","created_at":"{events.wire_time(row.created_at)}",'
        f'"payload":{row.payload},"hash":"{row.hash}"}}\n'
    ).encode()


# ── building ──────────────────────────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class _Chain:
    """What the manifest says of one chain."""

    kind: str
    id: str
    file: str
    count: int = 0
    """The newest number."""
    head: str = ""
    pruned: int = 0
    """The events up to this number are gone on purpose; `pruned_head` is the last one's hash."""
    pruned_head: str = ""
    problem: str = ""
    """The chain is broken here already: said in the manifest, and the rest exported all the same."""
    digest: Any = field(default_factory=hashlib.sha256)

    def manifest(self) -> dict[str, Any]:
        names = ("kind", "id", "file", "count", "head", "pruned", "pruned_head", "problem")
        named = {name: getattr(self, name) for name in names}
        return {**named, "sha256": self.digest.hexdigest()}

    def written(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        for each in lines:
            self.digest.update(each)
            yield each


def _build(what: str, id_: str, by: str, fill: Callable[[ZipFile], list[_Chain]]) -> Export:
    with ExitStack() as held:
        file = held.enter_context(tempfile.SpooledTemporaryFile(IN_MEMORY))
        name = "-".join(filter(None, ("pilothouse", what, id_)))
        size = _fill(file, what, id_, by, fill)
        held.pop_all()
    return Export(name=f"{name}.zip", file=file, size=size)


def _fill(
    file: IO[bytes], what: str, id_: str, by: str, fill: Callable[[ZipFile], list[_Chain]]
) -> int:
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        chains = fill(archive)
        manifest = canonical_json(
            {
                "format": FORMAT,
                "what": what,
                "id": id_,
                "made_at": events.wire_time(timezone.now()),
                "made_by": by,
                "server": _server(),
                "version": settings.VERSION,
                "public_key": public_key(),
                "chains": [each.manifest() for each in chains],
            }
        ).encode()
        archive.writestr(MANIFEST, manifest)
        archive.writestr(SIGNATURE, _key().sign(manifest))
    size = file.tell()
    file.seek(0)
    _note(what, id_, by, chains, hashlib.sha256(manifest).hexdigest())
    return size


def _server() -> str:
    """Where people find this server; empty where nobody said so, for a command does not know the
    port that a server was started on."""
    settings = conf()
    return settings.origin if "PILOTHOUSE_PUBLIC_URL" in settings.given else ""


def _note(what: str, id_: str, by: str, chains: list[_Chain], digest: str) -> None:
    audit.note(
        audit.Change(
            action=f"{what}.exported",
            by=by,
            object_type=what,
            object_id=id_,
            after={"entries": sum(each.count for each in chains), "manifest_sha256": digest},
        )
    )


def _task(archive: ZipFile, task: Task) -> _Chain:
    """The log up to where it stands now; what is appended meanwhile is not in it."""
    task.refresh_from_db(fields=["last_sequence", "last_hash", "session"])
    followed = chain.begins(task.pk)
    made = _Chain(
        kind="task",
        id=str(task.pk),
        file=f"tasks/{task.pk}.jsonl",
        count=followed.sequence,
        head=followed.hash,
        pruned=followed.sequence,
        pruned_head=followed.hash,
    )

    def lines() -> Iterator[bytes]:
        nonlocal followed
        for row in events.stream(task.pk):
            if row.sequence > task.last_sequence:
                break
            if not followed.problem:
                followed = chain.follow(followed, row, str(task.session_id))
            made.count, made.head = made.count + 1, row.hash
            yield line(row)

    _write(archive, made, lines())
    if not followed.problem:
        head = chain.Head(task.last_sequence, task.last_hash, task.session_id)
        followed = chain.compare(followed, head)
    made.problem = followed.problem
    return made


def _audit(archive: ZipFile) -> _Chain:
    made = _Chain(kind="audit", id="", file="audit.jsonl")
    followed = audit.AuditChain()
    last_sequence, last_hash = audit.head()

    def lines() -> Iterator[bytes]:
        nonlocal followed
        for entry in audit.stream():
            if entry.sequence > last_sequence:
                break
            if not followed.problem:
                followed = audit.follow(followed, entry)
            made.count, made.head = made.count + 1, entry.hash
            yield audit.line(entry)

    _write(archive, made, lines())
    if not followed.problem:
        followed = audit.ended(followed, last_sequence, last_hash)
    made.problem = followed.problem
    return made


def _write(archive: ZipFile, made: _Chain, lines: Iterable[bytes]) -> None:
    with archive.open(made.file, "w", force_zip64=True) as file:
        for each in made.written(lines):
            file.write(each)


def _key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(conf().signing_key)
