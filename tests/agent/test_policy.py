"""Policy: defaults by capability, modes that only tighten."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.policy import ALLOWED_ACTIONS, ASKED_ACTIONS, Mode, Policy, strictest

MODES: tuple[Mode, ...] = ("ask", "deny", "read_only")
ORDER = {"allow": 0, "ask": 1, "deny": 2}


@pytest.mark.parametrize(
    ("capability", "decision"),
    [
        ("file:read", "allow"),
        ("calendar:list", "allow"),
        ("file:write", "ask"),
        ("mail:draft:create", "ask"),
        ("row:update", "ask"),
        ("file:delete", "ask"),
        ("shell:execute", "ask"),
        ("web:network", "ask"),
        ("file:frobnicate", "deny"),
        ("", "deny"),
        ("read", "deny"),
        (":read", "deny"),
        ("file:", "deny"),
        ("file::read", "deny"),
        ("file:READ", "deny"),
        ("file:read ", "deny"),
        ("file:read\n", "deny"),
        ("file:write:read:", "deny"),
    ],
)
def test_the_last_segment_decides_the_default(capability, decision):
    assert Policy().decide(capability, "some_tool").decision == decision


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("capability", "asked"), [("file:read", "allow"), ("file:write", "ask"), ("x:y", "deny")])  # fmt: skip
def test_a_mode_turns_asking_into_refusing_and_leaves_the_rest(mode, capability, asked):
    decided = Policy(mode=mode).decide(capability, "tool").decision
    assert decided == ("deny" if asked == "ask" and mode != "ask" else asked)


def test_the_rule_says_where_a_decision_comes_from():
    assert Policy().decide("file:write", "write_file").rule == "default: file:write asks"
    assert Policy().decide("file:read", "read_file").rule == "default: file:read is allowed"
    denied = Policy(mode="deny").decide("file:write", "write_file")
    assert denied.rule == "mode: deny denies file:write"
    assert "nobody is asked" in denied.reason
    reading = Policy(mode="read_only").decide("file:write", "write_file")
    assert reading.rule == "mode: read_only denies file:write"
    assert "write_file" in reading.reason
    assert "no capability" in Policy().decide("", "tool").rule
    assert "'x:fly'" in Policy().decide("x:fly", "tool").rule


@given(capability=st.text(), mode=st.sampled_from(MODES))
def test_nothing_unknown_is_ever_allowed_and_no_mode_loosens(capability, mode):
    decision = Policy(mode=mode).decide(capability, "tool").decision
    if capability.rpartition(":")[2] not in ALLOWED_ACTIONS | ASKED_ACTIONS:
        assert decision == "deny"
    assert ORDER[decision] >= ORDER[Policy().decide(capability, "tool").decision]


def test_the_strictest_mode_wins_in_any_order():
    for first, second in product(MODES, MODES):
        assert strictest(first, second) == MODES[max(MODES.index(first), MODES.index(second))]
    assert strictest() == "ask"
