"""Answers leave Daphne in the turn in which they are made.

Twisted buffers what is written, has the socket watched until it may be written to, which it nearly
always may, and unwatches it: two changes to `epoll` and a turn of the reactor around each `send`. Here
the buffer is offered to the kernel as soon as what runs now is over, all that was written meanwhile in
one piece, and only what the kernel does not take at once waits for the reactor. What is whole by
itself, as a piece of a stream is, goes to the kernel without the buffer (`push`).

And Twisted makes a line of each request for a log of its own that nobody reads; Daphne's access log,
for who wants one, is another.

Relies on internals of Twisted 26; tests with a real Daphne hold them.
"""

from __future__ import annotations

import sys
from typing import Any


def hasten_daphne() -> None:
    """To be called once, before Daphne listens; does nothing where another server serves us."""
    if "daphne.server" not in sys.modules:
        return
    from twisted.internet import tcp
    from twisted.web import http

    tcp.Port.transport = _eager(tcp.Server)
    factory: Any = http.HTTPFactory
    factory.log = _no_line


def _no_line(_factory: object, _request: object) -> None: ...


def _eager(server: Any) -> Any:
    """Twisted's class of accepted connections, without its wait."""

    class Eager(server):  # type: ignore[misc]  # Twisted's are too dynamic for types
        _offered = False
        """Whether the buffer is about to be offered to the kernel."""

        def startWriting(self) -> None:  # noqa: N802 - Twisted's name
            if not self._offered and self not in self.reactor._writers:
                self._offered = True
                self.reactor._asyncioEventloop.call_soon(self._offer)

        def push(self, data: bytes) -> None:
            """As `write`, at once when nothing waits before it; TLS and all that is not so simple is
            Twisted's."""
            waits = self._tempDataLen or self.dataBuffer or self.disconnecting or self.TLS
            if not waits and self.connected and not self._writeDisconnected:
                try:
                    data = data[self.socket.send(data) :]
                except OSError:  # full, or broken: offered once more, where Twisted sees which
                    pass
            if data:
                self.write(data)

        def _offer(self) -> None:
            self._offered = False
            if self.connected:
                # As the reactor does when the socket is writable, a lost connection included.
                self.reactor._readOrWrite(self, False)
            if self.connected and (self._tempDataLen or len(self.dataBuffer) > self.offset):
                super().startWriting()

    return Eager
