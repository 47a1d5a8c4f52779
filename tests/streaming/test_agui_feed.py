"""The frames of a stream, put together again for AG-UI."""

from __future__ import annotations

from streaming import sse
from streaming.agui.feed import _Frames
from streaming.agui.translation import Frame


def test_a_frame_may_be_cut_anywhere() -> None:
    first = sse.stored_frame(7, b'event: a\ndata: {"type":"a","sequence":7}\n\n')
    whole = first + sse.HEARTBEAT + first
    expected = [Frame(type="a", sequence=7), None, Frame(type="a", sequence=7)]
    for at in range(1, len(whole)):
        frames = _Frames()
        assert [*frames.feed(whole[:at]), *frames.feed(whole[at:])] == expected, at
    frames = _Frames()
    assert [
        each for at in range(len(whole)) for each in frames.feed(whole[at : at + 1])
    ] == expected
