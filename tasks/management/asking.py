"""Questions about approvals at a prompt.

The answer is one line. While it is awaited somebody else may answer (another person, the clock):
then the prompt gives up. No answer at all leaves the approval in the inbox.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import TextIO

from agent.events import ApprovalRequired
from tasks.approvals import Reply
from tasks.management.terminal import DIFF_LINES, Screen

LOOK_SECONDS = 0.25
YES = frozenset({"y", "yes", "a", "approve"})
NO = frozenset({"n", "no", "r", "reject"})
WIDER = {"t": "task", "s": "session", "w": "always"}
"""Yes, and for more than this one call."""
LATER = frozenset({"l", "later", "q"})


class Keyboard:
    """Lines from a terminal or a pipe."""

    def __init__(self, stdin: TextIO) -> None:
        self._fd = stdin.fileno()
        self._read = b""

    def line(self, wanted: Callable[[], bool]) -> str | None:
        """The next line; None at the end of the input, or when it is no longer wanted."""
        while b"\n" not in self._read:
            if not select.select([self._fd], [], [], LOOK_SECONDS)[0]:
                if not wanted():
                    return None
                continue
            more = os.read(self._fd, 4096)
            if not more:
                return None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return line.decode(errors="replace").strip()


class Asker:
    """Puts approvals to the person at the prompt."""

    def __init__(self, screen: Screen, keyboard: Keyboard) -> None:
        self._screen = screen
        self._keyboard = keyboard

    def show(self, event: ApprovalRequired) -> None:
        """The card, where the task itself is shown elsewhere."""
        self._screen.show(event)

    def ask(self, event: ApprovalRequired, wanted: Callable[[], bool]) -> Reply | None:
        """The reply; None when the person leaves it open or it is no longer wanted."""
        if event.kind == "unknown_effect":
            return self._what_happened(wanted)
        if event.kind == "question":
            return self._what_they_say(event.arguments.get("options", []), wanted)
        return self._may_it(event, wanted)

    def _may_it(self, event: ApprovalRequired, wanted: Callable[[], bool]) -> Reply | None:
        long = len(event.diff.splitlines()) > DIFF_LINES
        whole = " · d = whole diff" if long else ""
        wider = WIDER if event.standing else {}
        if wider:
            self._screen.line(
                f"  Yes to {event.standing} from now on: "
                "t = in this task · s = in this conversation · w = in this workspace, always"
            )
        while True:
            answer = self._choice(f"  Approve? y = yes · n = no{whole} · l = later: ", wanted)
            if answer is None or answer in LATER:
                return None
            if answer in YES:
                return Reply(decision="approve")
            if answer in wider:
                return Reply(decision="approve", scope=wider[answer])
            if answer in NO:
                return self._reject(wanted)
            if long and answer == "d":
                self._screen.diff(event.diff)

    def _what_happened(self, wanted: Callable[[], bool]) -> Reply | None:
        self._screen.line(
            "  The process stopped while this call ran; nobody knows whether it took effect."
        )
        prompt = "  Did it happen? d = done · t = try again · n = neither, give it up · l = later: "
        while True:
            answer = self._choice(prompt, wanted)
            if answer is None or answer in LATER:
                return None
            if answer in {"d", "done"}:
                return Reply(decision="approve", answer="done")
            if answer in {"t", "retry"}:
                return Reply(decision="approve", answer="retry")
            if answer in NO:
                return self._reject(wanted)

    def _what_they_say(self, options: list[str], wanted: Callable[[], bool]) -> Reply | None:
        """A number chooses, anything else is the answer itself."""
        choice = "a number or your words" if options else "your words"
        while True:
            said = self._line(f"  {choice} · n = let it decide · l = later: ", wanted)
            if said is None or said.lower() in LATER:
                return None
            if said.lower() in NO:
                return self._reject(wanted)
            if said.isdecimal() and 1 <= int(said) <= len(options):
                return Reply(decision="approve", answer=options[int(said) - 1])
            if said:
                return Reply(decision="approve", answer=said)

    def _reject(self, wanted: Callable[[], bool]) -> Reply | None:
        comment = self._line("  Why? (the agent reads it; may be empty): ", wanted)
        return None if comment is None else Reply(decision="reject", comment=comment)

    def _choice(self, prompt: str, wanted: Callable[[], bool]) -> str | None:
        line = self._line(prompt, wanted)
        return None if line is None else line.lower()

    def _line(self, prompt: str, wanted: Callable[[], bool]) -> str | None:
        self._screen.question(prompt)
        line = self._keyboard.line(wanted)
        if line is not None:
            self._screen.answered()
        return line
