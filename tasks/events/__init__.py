"""The event store: the only door to `TaskEvent`.

Writing: `append()` inside a command of `tasks.writer`. It numbers the events, links them into the
task's hash chain (`tasks.events.appending` defines it), inserts them and rings the hub after COMMIT.
Reading: `page()`, `page_session()`, `one()` give rows; `wire_body()` and `frame()` their wire form.
`past()` gives the log of a task that has ended as its stream sends it.
"""

from __future__ import annotations

from tasks.canonical import canonical_json
from tasks.events.appending import (
    FIRST_PREVIOUS_HASH,
    OWN_FIELDS,
    Appended,
    FenceLost,
    Head,
    append,
    begin,
    forget,
    link,
    ready,
    store,
)
from tasks.events.reading import Past, brief, one, page, page_session, past, row_of, stream, typed
from tasks.events.rows import Row
from tasks.events.together import COUNTERS, Heads, NotTogether, Wanted, append_together
from tasks.events.wire import MAX_CONTENT_BYTES, frame, wire_body, wire_time, with_html

__all__ = [
    "COUNTERS",
    "FIRST_PREVIOUS_HASH",
    "MAX_CONTENT_BYTES",
    "OWN_FIELDS",
    "Appended",
    "FenceLost",
    "Head",
    "Heads",
    "NotTogether",
    "Past",
    "Row",
    "Wanted",
    "append",
    "append_together",
    "begin",
    "brief",
    "canonical_json",
    "forget",
    "frame",
    "link",
    "one",
    "page",
    "page_session",
    "past",
    "ready",
    "row_of",
    "store",
    "stream",
    "typed",
    "wire_body",
    "wire_time",
    "with_html",
]
