"""Faults of real servers' streams, from public reports about other clients, and what is right.

`tests/support/faults` has them, each with its source (repository#number): as their payloads, or as
bytes where the framing is the fault.
"""

from __future__ import annotations

import pytest

from agent.messages import Reasoning, Text, ToolCall
from tests.support.faults.calls import CALLS
from tests.support.faults.streams import Fault, read
from tests.support.faults.texts import TEXTS
from tests.support.faults.thoughts import THOUGHTS

FAULTS = [*CALLS, *TEXTS, *THOUGHTS]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.source.split(":")[0])
@pytest.mark.parametrize("cuts", [1, 7, 1_000_000])
def test_a_reported_stream_means_what_it_means(fault: Fault, cuts: int) -> None:
    _, reply = read(fault.body(), cuts, think_open=fault.think_open)
    texts = [block.text for block in reply.blocks if isinstance(block, Text)]
    thoughts = [block.text for block in reply.blocks if isinstance(block, Reasoning)]
    calls = [block for block in reply.blocks if isinstance(block, ToolCall)]
    assert "".join(texts) == fault.text
    assert "".join(thoughts) == fault.reasoning
    assert [(call.name, call.arguments) for call in calls] == fault.calls
    assert len({call.block_id for call in calls}) == len(calls)
    if fault.finish:
        assert reply.finish_reason == fault.finish
    if fault.usage:
        assert (reply.usage.input_tokens, reply.usage.output_tokens) == fault.usage
        assert not reply.usage.estimated
