"""The two ways in which `run_task` shows a task: for a person, or as one line of JSON per event."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol, TextIO
from uuid import UUID

from django.core.management.base import OutputWrapper

from agent.events import ApprovalRequired, LiveEvent, payload_of
from agent.text import visible
from tasks import events
from tasks.canonical import canonical_json
from tasks.events import Row
from tasks.management.terminal import Screen

HOW_TO_ANSWER = """\
It waits for an answer{until}; before it nothing is changed.

  .venv/bin/python manage.py resolve_approval {first} approve{answer}
  .venv/bin/python manage.py resolve_approval {first} reject --comment "why"

Then the task goes on: by itself where a server runs, else with  .venv/bin/python manage.py recover_tasks"""


def _how_to_answer(question: ApprovalRequired) -> str:
    expires = datetime.fromisoformat(question.expires_at) if question.expires_at else None
    until = f" until {expires:%H:%M} UTC" if expires else ""
    answer = ' --answer "…"' if question.kind == "question" else ""
    return HOW_TO_ANSWER.format(first=question.approval_id, until=until, answer=answer)


class Outlet:
    """An output whose reader may go away: a task does not end because nobody looks any more."""

    def __init__(self, out: OutputWrapper) -> None:
        self._out = out

    def write(self, text: str) -> int:
        try:
            self._out.write(text, style_func=str, ending="")  # as it is
        except BrokenPipeError:
            self._lose()
        return len(text)

    def flush(self) -> None:
        try:
            self._out.flush()
        except BrokenPipeError:
            self._lose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def _lose(self) -> None:
        """What is still in a buffer, or comes later, goes nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._out.fileno())
        os.close(nowhere)


class View(Protocol):
    """What a running task is shown on."""

    def began(self, task_id: UUID, where: str) -> None: ...

    def stored(self, row: Row) -> None: ...

    def live(self, event: LiveEvent) -> None: ...

    def note(self, text: str) -> None:
        """Something that is no event."""

    def left_open(self, questions: Sequence[ApprovalRequired]) -> None: ...


class Plain:
    """For a person."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def began(self, task_id: UUID, where: str) -> None:
        self.screen.line(f"task {task_id} in {visible(where)}", "dim")

    def stored(self, row: Row) -> None:
        self.screen.show(events.typed(row))

    def live(self, event: LiveEvent) -> None:
        self.screen.show(event)

    def note(self, text: str) -> None:
        self.screen.line(text, "yellow")

    def left_open(self, questions: Sequence[ApprovalRequired]) -> None:
        self.screen.line()
        self.screen.line(_how_to_answer(questions[0]))


class Json:
    """For a program: what a client of the stream reads, nothing else."""

    def __init__(self, out: TextIO, notes: Screen) -> None:
        self._out = out
        self._notes = notes
        self._task_id = ""

    def began(self, task_id: UUID, where: str) -> None:
        self._task_id = str(task_id)

    def stored(self, row: Row) -> None:
        self._line(events.wire_body(row, cut=True).decode())

    def live(self, event: LiveEvent) -> None:
        payload = canonical_json(payload_of(event))
        self._line(
            f'{{"sequence":0,"type":"{event.type}","task_id":"{self._task_id}","payload":{payload}}}'
        )

    def note(self, text: str) -> None:
        self._notes.line(text)

    def left_open(self, questions: Sequence[ApprovalRequired]) -> None:
        self._notes.line(_how_to_answer(questions[0]))

    def _line(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()
