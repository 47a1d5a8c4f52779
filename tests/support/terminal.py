"""A program on a real terminal (a pseudo-terminal): what a person sees, and types."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 30.0


class Terminal:
    """`with Terminal(["run_task", …], env) as terminal: terminal.until("later:")`."""

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", *words],
            cwd=ROOT,
            env={**env, "TERM": "xterm-256color", "COLUMNS": "120"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> str:
        """Wait for `text` behind what was waited for before; what came up to it."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.seen}"
            assert self._read(), f"it ended without {text!r}:\n{self.seen}"
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def enter(self, line: str) -> None:
        os.write(self._ours, f"{line}\n".encode())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for the end of the program; its exit status."""
        deadline = time.monotonic() + PATIENCE
        while self._read():
            assert time.monotonic() < deadline, f"it did not end:\n{self.seen}"
        return self.process.wait(PATIENCE)

    def _read(self) -> bool:
        """Read what is there; False after the program closed the terminal."""
        if not select.select([self._ours], [], [], 0.2)[0]:
            return True
        try:
            more = os.read(self._ours, 65536)
        except OSError:  # Linux says so when the last process has let go
            return False
        self.seen += more.decode(errors="replace")
        return bool(more)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)
