"""`?render=html` on lists of events: an answer also comes as the HTML that a page shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from ninja import Query

from tasks import events
from tasks.render import rendered_now

Render = Annotated[Literal["html"] | None, Query()]


class _Text(msgspec.Struct):
    text: str


_text = msgspec.json.Decoder(_Text)


def bodies(rows: Sequence[events.Row], render: Render) -> list[bytes]:
    """The events as JSON. In a thread: it waits for the rendering."""
    if render is None:
        return [events.wire_body(row) for row in rows]
    return [_with_html(row) for row in rows]


def _with_html(row: events.Row) -> bytes:
    body = events.wire_body(row)
    if row.type != "assistant_message":
        return body
    return events.with_html(body, rendered_now(_text.decode(row.payload).text))
