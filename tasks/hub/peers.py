"""What a hub tells the other processes, where there are any (`tasks.relay`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tasks.hub.topic import Key, StoredFrame


class Peers(Protocol):
    """Called on the event loop; nothing here may wait or raise."""

    def followed(self, key: Key) -> None:
        """Somebody follows it here, and nobody did before."""

    def unfollowed(self, key: Key) -> None:
        """Nobody does any more."""

    def running(self, task_id: str, session_id: str) -> None:
        """A run begins here."""

    def idle(self, task_id: str, session_id: str) -> None:
        """It ended."""

    def grew(self, task_id: str, session_id: str) -> None:
        """There is more of a live block, or of a progress, of a run here."""

    def committed(self, frames: Sequence[StoredFrame]) -> None:
        """Stored here. Comes before the live state that they end is dropped."""
