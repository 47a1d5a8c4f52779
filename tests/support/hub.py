"""Frames and deltas for a hub, and what a cursor gets of it."""

from __future__ import annotations

from typing import Any

from agent.events import (
    AssistantDelta,
    UserMessageAdded,
)
from tasks.hub import Hub, Key, StoredFrame

NOTE = UserMessageAdded(message_id="m", text="and this", by="alice")


def frame(sequence: int, type_: str = "user_message", **fields: Any) -> StoredFrame:
    values: dict[str, Any] = {"body": b"x", "position": sequence} | fields
    return StoredFrame(task_id="t", session_id="s", sequence=sequence, type=type_, **values)


def delta(offset: int, text: str, block_id: str = "a") -> AssistantDelta:
    return AssistantDelta(step=1, block_id=block_id, offset=offset, delta=text)


def numbers(own: Hub, cursor: int, kind: str = "task", id_: str = "t") -> list[int]:
    with own.listen(Key(kind, id_)) as seat:  # type: ignore[arg-type]
        return [found.sequence for found in seat.topic.after(cursor)]
