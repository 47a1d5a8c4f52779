"""What a command writes, kept while it comes: the beginning and the end, whatever the length."""

from __future__ import annotations

import re

HEAD_BYTES = 12 * 1024
TAIL_BYTES = 12 * 1024
LINE_CHARACTERS = 200

_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|[PX^_][^\x1b]{0,4096}\x1b\\"
    r"|[ -/]*[0-~])"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Output:
    """Bounded, however much comes."""

    def __init__(self) -> None:
        self.total = 0
        """Bytes."""
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail += data[-TAIL_BYTES:]
            del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """For the model: what a terminal would show, and how much is left out."""
        left_out = self.total - len(self._head) - len(self._tail)
        if not left_out:
            return readable(bytes(self._head + self._tail)).rstrip("\n")
        note = (
            f"\n[… cut: {self.total:,} bytes in all, {left_out:,} in the middle are left out. Ask "
            "for less: head, tail, grep. …]\n"
        )
        return (readable(bytes(self._head)) + note + readable(bytes(self._tail))).rstrip("\n")

    def last_line(self) -> str:
        """The newest line that is not empty."""
        end = readable(bytes((self._head + self._tail)[-4 * LINE_CHARACTERS :]))
        lines = [line.strip() for line in end.split("\n") if line.strip()]
        return lines[-1][:LINE_CHARACTERS] if lines else ""


def readable(data: bytes) -> str:
    """Text without what moves a cursor; a line that was written over shows its last state."""
    lines = _ESCAPE.sub("", data.decode("utf-8", "replace")).split("\n")
    shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    return _CONTROL.sub("\ufffd", shown)
