"""docs/events.md is what outsiders build on: it must say what the code does. And what the pages give
to copy can be run as it stands."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest

from agent.events import TERMINAL_TYPES, LiveEvent, StoredEvent
from config.env import ROOT
from tasks import events
from tests.support.documents import blocks

PAGE = (ROOT / "docs/events.md").read_text(encoding="utf-8")
TO_COPY = {"sh", "bash", "console", "ini", "nginx", "cron"}
VOCABULARY = [*get_args(StoredEvent), *get_args(LiveEvent)]


@pytest.mark.parametrize("event", VOCABULARY, ids=lambda event: event.__struct_config__.tag)
def test_every_event_and_its_fields_are_on_the_page(event):
    row = re.search(rf"^\| `{event.__struct_config__.tag}` \|(.*)\|$", PAGE, re.MULTILINE)
    assert row, "no row in docs/events.md"
    fields = [field.encode_name for field in msgspec.structs.fields(event)]
    assert [name for name in fields if f"`{name}`" not in row[1]] == []


def test_the_terminal_types_are_the_last_four_of_the_first_table():
    table = PAGE[PAGE.index("### The life of a task") : PAGE.index("The last four are")]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert set(listed[-4:]) == TERMINAL_TYPES


def test_the_example_of_the_chain_is_what_the_store_computes(settings):
    program = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert program
    documented: dict[str, Any] = {}
    exec(program[1], documented)
    key = bytes(31) + b"\1"
    settings.PILOTHOUSE = replace(settings.PILOTHOUSE, audit_key=key)
    task_id, time = re.search(r"task `([\w-]+)`, both events at `(\S+)`", PAGE).groups()  # type: ignore[union-attr]
    examples = re.findall(r"^(\d) (\w+)\n(\{.*\})\n([0-9a-f]{64})$", PAGE, re.MULTILINE)
    assert len(examples) == 2
    previous = "0" * 64
    for sequence, type_, payload, expected in examples:
        row = events.Row(
            task_id=task_id,
            session_id="",
            sequence=int(sequence),
            position=1,
            type=type_,
            payload=payload,
            created_at=datetime.fromisoformat(time).astimezone(UTC),
            hash="",
        )
        assert events.link(previous, row) == expected
        own = documented["link"](key, previous, task_id, int(sequence), type_, time, payload)
        assert own == expected
        assert events.canonical_json(msgspec.json.decode(payload)) == payload
        previous = expected


def test_what_is_there_to_copy_has_no_gaps() -> None:
    code = [
        (place, line.split("#")[0]) for place, text in blocks(*TO_COPY) for line in text.split("\n")
    ]
    assert len(code) > 50
    assert [found for found in code if re.search("…|<[a-z]", found[1])] == []


def test_what_a_shell_gets_is_shell() -> None:
    for place, text in blocks("sh", "bash"):
        checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True)
        assert checked.stderr == "", place
