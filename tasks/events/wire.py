"""The form of a stored event on the API and on streams, and what the hub keeps of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

import msgspec

from tasks.canonical import canonical_json
from tasks.events.rows import Row, aware
from tasks.hub import StoredFrame

MAX_CONTENT_BYTES = 4 * 1024
"""More of a tool's `content` than this is cut on a stream."""


class Told(NamedTuple):
    """An event as a stream tells it."""

    sequence: int
    type: str
    text: str


class _Block(msgspec.Struct, frozen=True, kw_only=True):
    """What the hub wants to know of a payload."""

    block_id: str | None = None
    text: str | None = None
    tool_call_id: str | None = None


_KNOWN_TO_HUB: dict[str, frozenset[str]] = {
    "reasoning_message": frozenset({"block_id", "text"}),
    "assistant_message": frozenset({"block_id", "text"}),
    "tool_call_requested": frozenset({"block_id"}),
    "tool_call_finished": frozenset({"tool_call_id"}),
}
_NOTHING = _Block()
_block_decoder = msgspec.json.Decoder(_Block)
_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text_decoder = msgspec.json.Decoder(str)


@lru_cache(maxsize=64)
def wire_time(moment: datetime) -> str:
    """UTC with milliseconds: `2026-01-31T09:30:00.123Z`. Events of one append have one."""
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{utc.isoformat(timespec='milliseconds')[:-6]}Z"


def wire_body(row: Row, *, cut: bool = False) -> bytes:
    """The event as the JSON object of the API and the stream, in one line.

    `cut`: as streams send it, large tool `content` shortened and with the URL of the whole.
    """
    return _wire_text(row, cut=cut).encode()


def _wire_text(row: Row, *, cut: bool) -> str:
    payload = _wire_payload(row.task_id, row.sequence, row.type, row.payload, cut)
    return (
        f'{{"sequence":{row.sequence},"position":{row.position},"type":"{row.type}",'
        f'"task_id":"{row.task_id}","created_at":"{wire_time(row.created_at)}",'
        f'"payload":{payload}}}'
    )


def told(task_id: str, rows: Iterable[tuple[int, int, str, str, str]]) -> Iterator[Told]:
    """Events of a task as its stream tells them, id and all: for who reads a whole log at once.

    Of each its sequence, position, type, payload and `created_at`, as text.
    """
    middle = f'","task_id":"{task_id}","created_at":"'
    for sequence, position, kind, payload, created_at in rows:
        text = (
            f'id: {sequence}\nevent: {kind}\ndata: {{"sequence":{sequence},"position":{position},'
            f'"type":"{kind}{middle}{_time_of(created_at)}",'
            f'"payload":{_wire_payload(task_id, sequence, kind, payload, True)}}}\n\n'
        )
        yield Told(sequence, kind, text)


@lru_cache(maxsize=16)
def _time_of(created_at: str) -> str:
    return wire_time(aware(created_at))


def with_html(event: bytes, html: str) -> bytes:
    """An event of the wire, or its frame, with `html` as the last field of its payload."""
    end = len(event) - len(b"}}\n\n" if event.endswith(b"\n") else b"}}")
    return event[:end] + b',"html":' + canonical_json(html).encode() + event[end:]


def frame(row: Row) -> StoredFrame:
    """The event as the hub and `follow()` pass it on: `event:` and `data:` lines without the id."""
    known = _KNOWN_TO_HUB.get(row.type)
    block = _block_decoder.decode(row.payload) if known else _NOTHING
    return StoredFrame(
        task_id=row.task_id,
        session_id=row.session_id,
        sequence=row.sequence,
        position=row.position,
        type=row.type,
        body=f"event: {row.type}\ndata: {_wire_text(row, cut=True)}\n\n".encode(),
        block_id=block.block_id if known and "block_id" in known else None,
        text=block.text if known and "text" in known else None,
        tool_call_id=block.tool_call_id if known and "tool_call_id" in known else None,
    )


def _wire_payload(task_id: str, sequence: int, kind: str, payload: str, cut: bool) -> str:
    """The stored text, unless something in it is not for browsers."""
    perhaps_large = kind == "tool_call_finished" and len(payload) > MAX_CONTENT_BYTES // 4
    if not (cut and perhaps_large) and '"provider_data"' not in payload:
        return payload
    fields = _object_decoder.decode(payload)
    fields.pop("provider_data", None)
    if cut and "content" in fields:
        fields |= _cut_content(f"/api/tasks/{task_id}/events/{sequence}", fields["content"])
    return msgspec.json.encode(fields).decode()


def _cut_content(whole: str, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """`whole` is where all of it can be read."""
    content = _text_decoder.decode(raw).encode()
    if len(content) <= MAX_CONTENT_BYTES:
        return {}
    changed = {
        "content": content[:MAX_CONTENT_BYTES].decode(errors="ignore"),  # not half a character
        "truncated": True,
        "size": len(content),
        "url": whole,
    }
    return {name: msgspec.Raw(canonical_json(value).encode()) for name, value in changed.items()}
