"""Markdown -> HTML that a page may show: one renderer, one sanitiser, for live text and history alike.

1. The source is never trusted. Raw HTML in it is text; what the renderer makes goes through the
   sanitiser all the same, which knows exactly what the renderer can make (docs/pages.md lists it).
2. Nothing is fetched: images are links. Links lead to http, https and mailto, or stay text.
3. Work is bounded: what is longer than `MAX_MARKDOWN` is shown as it was written.
4. `settled` cuts a growing text where later text changes nothing: the pieces, rendered one by one
   and joined, are the whole rendered at once (but for links that are defined further down).
5. Rendering takes milliseconds of pure computing: `rendered` and `submit` do it in a few threads of
   their own, never on the event loop, and the same text once.
"""

from __future__ import annotations

from tasks.render.growth import MAX_OPEN, Growth, Step, settled
from tasks.render.shared import rendered, rendered_now, shelf, submit
from tasks.render.whole import MAX_BRACKETS, MAX_MARKDOWN, plain, render

__all__ = [
    "MAX_BRACKETS",
    "MAX_MARKDOWN",
    "MAX_OPEN",
    "Growth",
    "Step",
    "plain",
    "render",
    "rendered",
    "rendered_now",
    "settled",
    "shelf",
    "submit",
]
