"""Live frames on their way from a run to whoever watches it.

Embedded, run and watchers share one process and one event loop: the relay hands over at once, and
`tasks.hub` decides when to wake the followers. In scale-out the hub also tells its `Peers`, and
`tasks.relay.exchange` carries what they hear to the hubs of other processes. Runs and followers do
not notice the difference.
"""

from __future__ import annotations

from tasks.hub import hub

publish = hub.live
"""Show a delta or a progress of a task and its session. On the event loop; never waits, never fails
for a watcher."""
turn = hub.turn
"""After a delta of a task: what to wait for before the run reads on. Under load that is later, and
more at once; else None."""
