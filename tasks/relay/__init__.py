"""Live frames on their way from a run to whoever watches it.

Embedded, run and watchers share one process and one event loop: the relay hands over at once, and
`tasks.hub` decides when to wake the followers. In scale-out the hub also tells its `Peers`, and
`tasks.relay.exchange` carries what they hear to the hubs of other processes. Runs and followers do
not notice the difference.
"""

from __future__ import annotations

from asyncio import Future

from agent.events import LiveEvent
from tasks.hub import hub


def publish(task_id: str, session_id: str, event: LiveEvent) -> None:
    """Show a delta or a progress. On the event loop; never waits, never fails for a watcher."""
    hub.live(task_id, session_id, event)


def turn(task_id: str) -> Future[None] | None:
    """After a delta: what to wait for before the run reads on. Under load that is later, and more
    at once; else None."""
    return hub.turn(task_id)
