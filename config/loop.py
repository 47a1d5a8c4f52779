"""Which event loop the server runs on: uvloop's where it is installed, else asyncio's own.

Daphne makes a loop when it is imported and ties Twisted to it, unless Twisted is tied to one already.
So this comes before that import; the command `daphne config.asgi:application` has asyncio's.
"""

from __future__ import annotations

import asyncio


def install() -> None:
    """Ties Twisted to the loop; once, before anything imports Daphne's server."""
    from twisted.internet import asyncioreactor

    asyncioreactor.install(fastest())  # type: ignore[no-untyped-call]


def fastest() -> asyncio.AbstractEventLoop:
    """A new event loop."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
