"""The audit: who changed what stands around the tasks, in a hash chain of its own.

`note()` is for everybody: inside an open transaction the entry shares its fate (the change and its
entry are stored together or not at all), else it goes through the writer. Entries are written once;
`verify()` follows the chain. Secrets never enter: see `masked()`.

**The chain**, so that an outsider can check it. For each entry, in order of `sequence`:

    record = [SEQUENCE,"CREATED AT","BY","ACTION","OBJECT TYPE","OBJECT ID",DETAILS]
    hash   = hex(HMAC-SHA256(key = PILOTHOUSE_AUDIT_KEY, message = previous hash + record))

`record` is canonical JSON (`tasks.canonical`), DETAILS the stored text as it is; `previous hash` is
the hex text of the entry before, 64 zeros for the first.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import connection
from django.utils import timezone

from agent.text import clean
from tasks.canonical import canonical_json
from tasks.conf import conf
from tasks.models import AuditEntry, AuditHead, Workspace
from tasks.writer import writer

FIRST_PREVIOUS_HASH = "0" * 64
NOBODY = "-"
"""`by` of a command, and of Pilothouse itself."""
MASK = "•••"
_SECRET = re.compile(r"(^|_)(token|secret|password|passwd|digest|key|credential)s?\d*($|_)", re.I)
CHUNK = 2000


@dataclass(frozen=True, kw_only=True)
class Change:
    """What somebody did to something."""

    action: str
    """`type.verb`, e.g. schedule.changed"""
    by: str = NOBODY
    object_type: str
    object_id: str = ""
    name: str = ""
    """What people call the object."""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    """Only what changed; a new object has no before, a deleted one no after."""
    note: str = ""


def of_workspace(
    workspace: Workspace,
    action: str,
    by: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    note: str = "",
) -> Change:
    """A change of a workspace, its people or its files."""
    return Change(
        action=action,
        by=by,
        object_type="workspace",
        object_id=str(workspace.pk),
        name=workspace.name,
        before=before or {},
        after=after or {},
        note=note,
    )


def note(change: Change) -> None:
    """Store an entry. Not for the event loop: call it in a thread or a command."""
    if connection.in_atomic_block:
        record(change)
    else:
        writer.run_sync(partial(record, change))


def record(change: Change) -> AuditEntry:
    """Command: the next entry of the chain."""
    AuditHead.objects.get_or_create(pk=1)
    head = AuditHead.objects.select_for_update().get(pk=1)  # entries queue up here
    now = timezone.now()
    entry = AuditEntry(
        sequence=head.last_sequence + 1,
        created_at=now.replace(microsecond=now.microsecond // 1000 * 1000),
        by=clean(change.by)[:150],
        action=change.action,
        object_type=change.object_type,
        object_id=change.object_id,
        details=canonical_json(
            {
                "name": change.name,
                "before": masked(change.before),
                "after": masked(change.after),
                "note": change.note,
            }
        ),
    )
    entry.hash = link(head.last_hash, entry)
    entry.save(force_insert=True)
    AuditHead.objects.filter(pk=1).update(last_sequence=entry.sequence, last_hash=entry.hash)
    return entry


def link(previous_hash: str, entry: AuditEntry) -> str:
    """The entry's hash; the module's docstring defines it."""
    texts = ",".join(_texts(entry).values())
    message = f"{previous_hash or FIRST_PREVIOUS_HASH}[{entry.sequence},{texts},{entry.details}]"
    return hmac.digest(conf().audit_key, message.encode(), "sha256").hex()


def line(entry: AuditEntry) -> bytes:
    """The entry as a line of JSON; every text stands in it as it was hashed."""
    fields = {"sequence": str(entry.sequence), **_texts(entry)}
    fields |= {"details": entry.details, "hash": canonical_json(entry.hash)}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}\n").encode()


def _texts(entry: AuditEntry) -> dict[str, str]:
    time = entry.created_at.astimezone(UTC).isoformat(timespec="milliseconds")
    names = ("by", "action", "object_type", "object_id")
    fields = {"created_at": time.replace("+00:00", "Z")}
    fields |= {name: getattr(entry, name) for name in names}
    return {name: canonical_json(text) for name, text in fields.items()}


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without secrets, as far down as they go."""
    return {name: _masked(name, value) for name, value in values.items()}


def _masked(name: str, value: Any) -> Any:
    if _SECRET.search(name):
        return MASK if value not in (None, "") else value
    if isinstance(value, Mapping):
        return {str(key): _masked(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked("", item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# ── checking ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class AuditChain:
    """How far the chain is whole, and what is wrong behind that."""

    sequence: int = 0
    hash: str = ""
    problem: str = ""


def verify() -> AuditChain:
    """Follow the chain to its head. An entry that is added meanwhile is followed, too."""
    chain = AuditChain()
    while True:
        last_sequence, last_hash = head()
        before = chain.sequence
        for entry in stream(before or None):
            chain = follow(chain, entry)
            if chain.problem:
                return chain
        if chain.sequence == before:
            return ended(chain, last_sequence, last_hash)


def follow(chain: AuditChain, entry: AuditEntry) -> AuditChain:
    """The chain with its next entry, or with what is wrong about it."""
    expected = chain.sequence + 1
    if entry.sequence != expected:
        missing = min(entry.sequence, expected)
        return _broken(chain, f"entry {missing} is missing or misplaced")
    if entry.hash != link(chain.hash, entry) or entry.created_at.microsecond % 1000:
        return _broken(chain, f"entry {expected} does not match its hash")
    return AuditChain(sequence=entry.sequence, hash=entry.hash)


def stream(after: int | None = None) -> Iterator[AuditEntry]:
    """All entries in order of sequence, or those behind `after`; however many there are."""
    found = AuditEntry.objects.order_by("sequence")
    if after is not None:
        found = found.filter(sequence__gt=after)
    return found.iterator(CHUNK)


def head() -> tuple[int, str]:
    """Where the chain ends."""
    found = AuditHead.objects.filter(pk=1).values_list("last_sequence", "last_hash").first()
    return found or (0, "")


def ended(chain: AuditChain, last_sequence: int, last_hash: str) -> AuditChain:
    """Nothing follows in the table: the head must agree."""
    if last_sequence > chain.sequence:
        return _broken(chain, f"entry {chain.sequence + 1} is missing at the end")
    if last_sequence < chain.sequence:
        return _broken(chain, f"entry {last_sequence + 1} is behind the head")
    if last_hash != chain.hash:
        return _broken(chain, f"entry {chain.sequence} is not the head")
    return chain


def _broken(chain: AuditChain, problem: str) -> AuditChain:
    return AuditChain(sequence=chain.sequence, hash=chain.hash, problem=problem)


def values_of(entry: AuditEntry, *names: str) -> tuple[Any, ...]:
    """Values of its `after`."""
    after = json.loads(entry.details)["after"]
    return tuple(after.get(name) for name in names)


def moment_text(at: datetime | None) -> str | None:
    """A time as it stands in before and after."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")
