"""Blocks that grow side by side, on a wire that shows them one after the other."""

from __future__ import annotations

from typing import Any

from streaming.agui.translation import Frame, Translation
from tasks.threads import opened
from tests.support.agui import Rules, all_rules


def grown(kind: str, block_id: str, text: str, offset: int = 0) -> Frame:
    payload: dict[str, Any] = {"step": 1, "block_id": block_id, "offset": offset, "delta": text}
    if kind == "tool_call":
        payload |= {"index": 0, "name": "read_file"}
    return Frame(type=f"{kind}_delta", payload=payload)


def stored(kind: str, block_id: str, text: str) -> Frame:
    payload: dict[str, Any] = {"step": 1, "block_id": block_id, "text": text}
    return Frame(type=f"{kind}_message", payload=payload, sequence=1)


def requested(block_id: str, **arguments: Any) -> Frame:
    payload = {"tool_call_id": f"c-{block_id}", "block_id": block_id, "name": "read_file"}
    return Frame(
        type="tool_call_requested",
        payload={**payload, "step": 1, "arguments": arguments},
        sequence=1,
    )


START = Frame(type="model_call_started", payload={"step": 1, "model": "m"}, sequence=1)
FINISHED = Frame(type="model_call_finished", payload={"step": 1}, sequence=1)
BROKE_OFF = Frame(type="model_call_retried", payload={"step": 1}, sequence=1)
END = Frame(type="task_completed", sequence=1)


def play(*frames: Frame) -> Rules:
    translation = Translation("t", "r", opened([], ()))
    events = [translation.begin({})]
    for frame in (START, *frames, END):
        events += translation.feed(frame)
    return all_rules(events)


def short(rules: Rules) -> str:
    """One letter for each event that opens (large) or closes a message or a call."""
    letters = {"TEXT_MESSAGE": "t", "REASONING_MESSAGE": "r", "TOOL_CALL": "c"}
    ends = {"START": str.upper, "END": str.lower}
    found = [type_.rpartition("_") for type_ in rules.types]
    return "".join(
        ends[end](letters[stem]) for stem, _, end in found if stem in letters and end in ends
    )


def test_a_text_ends_before_a_call_begins() -> None:
    """agno-agi/agno#4378: many clients refuse the call otherwise."""
    rules = play(
        grown("reasoning", "r", "Hm."),
        grown("assistant", "t", "I look."),
        grown("tool_call", "c", '{"path":'),
        grown("tool_call", "c", '"a"}', 8),
        stored("reasoning", "r", "Hm."),
        stored("assistant", "t", "I look."),
        requested("c", path="a"),
        FINISHED,
    )
    assert short(rules) == "RrTtCc"
    assert rules.texts == {"r": "Hm.", "t": "I look.", "c": '{"path":"a"}'}


def test_a_text_that_goes_on_is_another_message() -> None:
    """agentscope-ai/agentscope-java#2988: its first one has ended, and knows no more pieces."""
    rules = play(
        grown("assistant", "t", "One "),
        grown("reasoning", "r", "hm "),
        grown("assistant", "t", "two ", 4),
        grown("reasoning", "r", "so", 3),
        stored("assistant", "t", "One two "),
        stored("reasoning", "r", "hm so"),
        FINISHED,
    )
    assert short(rules) == "TtRrTtRr"
    assert rules.seen == {"t", "t~2", "r", "r~2"}
    assert rules.texts == {"t": "One two ", "r": "hm so"}


def test_what_comes_while_a_call_is_written_waits_for_its_end() -> None:
    said = {"message_id": "m", "text": "In short", "by": "bob"}
    rules = play(
        grown("assistant", "t", "One "),
        grown("tool_call", "c", '{"path":'),
        grown("tool_call", "d", '{"path":'),
        grown("assistant", "t", "two", 4),
        Frame(type="user_message", payload=said, sequence=1),
        grown("tool_call", "c", '"a"}', 8),
        stored("assistant", "t", "One two"),
        requested("c", path="a"),
        grown("tool_call", "d", '"b"}', 8),
        requested("d", path="b"),
        FINISHED,
    )
    assert short(rules) == "TtCcTtTtCc"
    assert rules.texts == {
        "t": "One two",
        "c": '{"path":"a"}',
        "m": "In short",
        "d": '{"path":"b"}',
    }


def test_all_parts_of_what_broke_off_are_withdrawn() -> None:
    rules = play(
        grown("assistant", "t", "One "),
        grown("reasoning", "r", "hm"),
        grown("assistant", "t", "two", 4),
        grown("tool_call", "c", "{"),
        stored("reasoning", "r", "hm"),
        BROKE_OFF,
    )
    assert sorted(each["id"] for each in rules.custom("withdrawn")) == ["c", "t", "t~2"]
    assert set(rules.results) == {"c"}
