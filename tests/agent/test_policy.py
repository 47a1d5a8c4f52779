"""Policy: defaults by capability, modes that only tighten, rules in their order of judgement."""

from __future__ import annotations

from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.command_line import segments
from agent.policy import (
    ALLOWED_ACTIONS,
    ASKED_ACTIONS,
    Decision,
    Mode,
    Policy,
    Rule,
    Standing,
    Subject,
    standing,
    strictest,
)

MODES: tuple[Mode, ...] = ("ask", "deny", "read_only")
ORDER = {"allow": 0, "ask": 1, "deny": 2}


def decide(capability: str, tool: str = "tool", mode: Mode = "ask") -> Decision:
    return Policy(mode=mode).decide(Subject(tool=tool, capability=capability))


def write(path: str = "notes/a.md", **more: Any) -> Subject:
    return Subject(tool="write_file", capability="file:write", paths=(path,), **more)


def judged(subject: Subject, *rules: Rule, mode: Mode = "ask") -> Decision:
    """The order in which rules are given makes no difference."""
    found = {Policy(mode=mode, rules=order).decide(subject) for order in permutations(rules)}
    assert len(found) == 1
    return found.pop()


def rule(decision: Any, name: str = "r", **more: Any) -> Rule:
    return Rule(id=name, decision=decision, **more)


# ── defaults and modes ────────────────────────────────────────────────────────────────────────


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
    assert decide(capability).decision == decision


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("capability", "asked"), [("file:read", "allow"), ("file:write", "ask"), ("x:y", "deny")])  # fmt: skip
def test_a_mode_turns_asking_into_refusing_and_leaves_the_rest(mode, capability, asked):
    decided = decide(capability, mode=mode).decision
    assert decided == ("deny" if asked == "ask" and mode != "ask" else asked)


def test_the_decision_says_where_it_comes_from():
    assert decide("file:write").rule == "default: file:write asks"
    assert decide("file:read").rule == "default: file:read is allowed"
    denied = decide("file:write", mode="deny")
    assert denied.rule == "mode: deny denies file:write"
    assert "nobody is asked" in denied.reason
    assert denied.chain == ("default: file:write asks", "mode: deny denies file:write")
    reading = decide("file:write", "write_file", mode="read_only")
    assert reading.rule == "mode: read_only denies file:write"
    assert "write_file" in reading.reason
    assert "no capability" in decide("").rule
    assert "'x:fly'" in decide("x:fly").rule


@given(capability=st.text(), mode=st.sampled_from(MODES))
def test_nothing_unknown_is_ever_allowed_and_no_mode_loosens(capability, mode):
    decision = decide(capability, mode=mode).decision
    if capability.rpartition(":")[2] not in ALLOWED_ACTIONS | ASKED_ACTIONS:
        assert decision == "deny"
    assert ORDER[decision] >= ORDER[decide(capability).decision]


def test_the_strictest_mode_wins_in_any_order():
    for first, second in product(MODES, MODES):
        assert strictest(first, second) == MODES[max(MODES.index(first), MODES.index(second))]
    assert strictest() == "ask"


# ── rules ─────────────────────────────────────────────────────────────────────────────────────


def test_a_rule_decides_instead_of_the_default_and_is_named():
    found = judged(write(), rule("allow", path="notes/**", scope="workspace", label="notes"))
    assert (found.decision, found.scope, found.rule_id) == ("allow", "workspace", "r")
    assert found.rule == "workspace rule “notes” allows file:write"
    assert found.chain == ("workspace rule “notes” allows file:write", "default: file:write asks")


def test_a_deny_of_any_scope_beats_everything():
    allow = rule("allow", "a", scope="task", priority=100, final=True)
    for scope in ("global", "workspace", "session", "task"):
        deny = rule("deny", "d", scope=scope, from_card=True)
        assert judged(write(), allow, deny).rule_id == "d"


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        (rule("ask", "s", priority=1), rule("allow", "w", scope="task")),
        (rule("allow", "s", scope="task"), rule("ask", "w", scope="session")),
        (rule("allow", "s", scope="session"), rule("ask", "w", scope="workspace")),
        (rule("allow", "s", scope="workspace"), rule("ask", "w", scope="global")),
        (rule("ask", "s", scope="task"), rule("allow", "w", scope="task")),
        (rule("ask", "s", final=True), rule("allow", "w", scope="task", priority=9)),
        (rule("ask", "s"), rule("allow", "w", scope="task", from_card=True)),
        (rule("ask", "s", priority=-1), rule("allow", "w", scope="task", from_card=True)),
        (rule("ask", "s"), rule("allow", "w", final=True, from_card=True)),
    ],
    ids=[
        "priority",
        "task over session",
        "session over workspace",
        "workspace over global",
        "ask over allow",
        "final",
        "an administrator's over a card's",
        "however low its priority",
        "or final the other",
    ],
)
def test_the_order_of_rules(stronger, weaker):
    assert judged(write(), stronger, weaker).rule_id == "s"


def test_a_rule_cannot_make_something_unknown_known():
    everything = rule("allow", priority=100, final=True)
    for capability in ("", "file:fly", "read"):
        assert judged(Subject(tool="t", capability=capability), everything).decision == "deny"


def test_modes_stand_over_rules():
    allow, ask = rule("allow", "a"), rule("ask", "b", tool="read_file")
    read = Subject(tool="read_file", capability="file:read")
    assert judged(write(), allow, mode="read_only").decision == "deny"
    assert judged(write(), allow, mode="deny").decision == "allow"  # nobody would be asked
    assert judged(read, ask, mode="deny").decision == "deny"
    assert judged(read, mode="read_only").decision == "allow"


@pytest.mark.parametrize("path", ["skills/a/SKILL.md", "Skills/x", "memory/MEMORY.md", "skills"])
def test_no_rule_lets_what_later_runs_believe_be_changed_unasked(path):
    found = judged(write(path), rule("allow", priority=9, final=True))
    assert found.decision == "ask"
    assert found.rule.startswith("always asked")
    assert judged(write(path), rule("allow"), mode="deny").decision == "deny"
    read = Subject(tool="read_file", capability="file:read", paths=(path,))
    assert judged(read, rule("allow")).decision == "allow"


@given(
    rules=st.lists(
        st.builds(
            Rule,
            id=st.text(max_size=3),
            decision=st.sampled_from(["allow", "ask", "deny"]),
            scope=st.sampled_from(["global", "workspace", "session", "task"]),
            priority=st.integers(-3, 3),
            final=st.booleans(),
            from_card=st.booleans(),
            tool=st.sampled_from(["", "write_*", "read_file"]),
            path=st.sampled_from(["", "**", "notes/*", "*.md"]),
        ),
        max_size=6,
    ),
    path=st.sampled_from(["a.md", "notes/a.md", "skills/x"]),
)
def test_a_card_never_loosens_what_an_administrator_said(rules, path):
    theirs = [each for each in rules if not each.from_card]
    with_cards, without = (Policy(rules=each).decide(write(path)) for each in (rules, theirs))
    if without.rule_id:
        assert ORDER[with_cards.decision] >= ORDER[without.decision]


# ── patterns ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("notes/a.md", ["notes/a.md"], ["notes/A.md", "notes/a.md.bak", "x/notes/a.md"]),
        ("notes/*", ["notes/a.md"], ["notes/b/a.md", "notes", "notesx/a"]),
        ("notes/**", ["notes", "notes/a.md", "notes/b/c/d"], ["notes2/a", "a/notes/b"]),
        ("**/*.md", ["a.md", "b/c/a.md"], ["a.md/b", "a.txt"]),
        ("**", [".", "a", "a/b"], []),
        ("a/**/z", ["a/z", "a/b/c/z"], ["a/b", "a/bz"]),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("a[*]c", ["a*c"], ["abc"]),
    ],
)
def test_paths(pattern, fits, fits_not):
    allow = rule("allow", path=pattern)
    assert [path for path in fits if judged(write(path), allow).decision != "allow"] == []
    assert [path for path in fits_not if judged(write(path), allow).decision == "allow"] == []


def test_what_stops_sees_through_spelling_and_what_allows_does_not():
    for path in ("SECRETS/a", "secrets/A", "Secre\u0301ts/a"):
        deny = rule("deny", path="secrets/**" if "\u0301" not in path else "secr\u00e9ts/**")
        assert judged(write(path), deny).decision == "deny"
    assert judged(write("Notes/a"), rule("allow", path="notes/**")).decision == "ask"


@pytest.mark.parametrize(
    ("path", "pattern"),
    [("\uff53ecrets/a", "secrets/**"), ("secrets\u200b/a", "secrets/**"), ("secrets./a", "secrets/*"),
     ("notes/plan.md .", "notes/plan.md"), ("a\uff3b1\uff3d.md", "a\uff3b1\uff3d.md")],
)  # fmt: skip
def test_what_stops_sees_through_names_that_are_one_on_some_disk(path, pattern):
    assert judged(write(path), rule("deny", path=pattern)).decision == "deny"


def test_of_several_paths_all_must_be_allowed_and_one_is_enough_to_stop():
    move = Subject(tool="move", capability="file:write", paths=("a/x", "b/x"))
    assert judged(move, rule("allow", path="a/*")).decision == "ask"
    assert judged(move, rule("deny", path="a/*")).decision == "deny"
    assert judged(move, rule("allow", path="?/*")).decision == "allow"
    nowhere = Subject(tool="t", capability="file:write")
    assert judged(nowhere, rule("allow", path="**")).decision == "ask"


def test_hosts_and_exact_calls():
    fetch = Subject(tool="fetch_url", capability="web:network", host="api.example.com", digest="d")
    assert judged(fetch, rule("allow", host="*.example.com")).decision == "allow"
    assert judged(fetch, rule("allow", host="example.com")).decision == "ask"
    assert judged(write(), rule("allow", host="*")).decision == "ask"
    assert judged(fetch, rule("allow", digest="d")).decision == "allow"
    assert judged(fetch, rule("allow", digest="e")).decision == "ask"


def command(*segments: str) -> Subject:
    words = tuple(tuple(each.split()) for each in segments)
    return Subject(tool="run_command", capability="shell:execute", commands=words)


def test_every_command_of_a_line_is_judged_and_the_strictest_counts():
    rules = (rule("allow", "g", command="git log **"), rule("deny", "r", command="rm **"))
    assert judged(command("git log"), *rules).decision == "allow"
    assert judged(command("git log -p -- a"), *rules).decision == "allow"
    assert judged(command("git push"), *rules).decision == "ask"
    assert judged(command("git log", "curl x"), *rules).decision == "ask"
    assert judged(command("git log", "rm -rf ."), *rules).rule_id == "r"
    assert judged(command("git log"), rule("allow", command="git")).decision == "ask"
    assert judged(command("echo a b"), rule("allow", command="echo 'a b'")).decision == "ask"


@pytest.mark.parametrize(
    ("line", "stopped"),
    [
        ("rm -rf x", True), ("/bin/rm -rf x", True), ("env rm -rf x", True), ("rm '-rf'", True),
        ('rm "$x"', True), ("rm $x y", True), ("rm -$x y", True), ("rm -r$x", True), ("xargs rm", True),
        ("RM -rf x", True), ("/bin/Rm -rf x", True), ("rm {-rf,x}", True), ("rm *", True), ("find . -exec rm {} +", True),
        ("rm x", False), ("rm -f x", False), ("rm ./$x", False), ("rm x *", False), ("ls $x", False),
        ("rmdir -rf", False), ("/bin/rmdir $x", False),
    ],
)  # fmt: skip
def test_a_rule_that_stops_a_command_is_not_got_round_by_its_spelling(line, stopped):
    subject = Subject(tool="run_command", capability="shell:execute", commands=segments(line))
    rules = (rule("allow", "all"), rule("deny", "r", command="rm -rf **"))
    assert (judged(subject, *rules).decision == "deny") is stopped


def test_a_rule_that_stops_a_programs_path_stops_its_name():
    for line in ("rm x", "/usr/bin/rm x", "env rm x", "RM x"):
        subject = Subject(tool="run_command", capability="shell:execute", commands=segments(line))
        stops, allows = rule("deny", command="/bin/rm **"), rule("allow", command="/bin/rm **")
        assert judged(subject, rule("allow", "all"), stops).decision == "deny", line
        assert judged(subject, allows).decision == "ask", line


def test_a_rule_that_allows_a_command_fits_what_is_known_only():
    for line in ("/tmp/wc a", "wc", "wc a b", 'wc "$x" y'):
        subject = Subject(tool="run_command", capability="shell:execute", commands=segments(line))
        assert judged(subject, rule("allow", command="wc a")).decision == "ask", line


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("git -C * status", "for x in 'd -c core.fsmonitor=./evil'; do git -C $x status; done"),
        ("git push origin *", "for x in 'main --force'; do git push origin $x; done"),
        ("git * **", "ls | xargs -I% git % log"),
        ("cat notes*", "for x in '/a /etc/passwd'; do cat notes$x; done"),
        ("rm *", "rm *"),
    ],
)
def test_what_the_shell_expands_is_more_than_one_word_of_an_allowing_rule(pattern, line):
    others = [rule("allow", name, command=f"{name} **") for name in ("ls", "xargs")]
    rules = (rule("allow", "one", command=pattern), *others)
    subject = Subject(tool="run_command", capability="shell:execute", commands=segments(line))
    assert subject.commands
    assert judged(subject, *rules).decision == "ask"
    program = subject.commands[-1][0]
    assert judged(subject, *rules, rule("allow", command=f"{program} **")).decision == "allow"


def test_a_line_needs_a_use_of_every_rule_that_counts_them():
    rules = [
        Rule(id=f"{name}!", decision="allow", command=name, limited=True) for name in ("a", "b")
    ]
    free = rule("allow", "free", command="ls")
    found = judged(command("ls", "b", "a", "b"), free, *rules)
    assert (found.decision, found.uses) == ("allow", ("b!", "a!"))
    assert judged(command("ls"), free, *rules).uses == ()
    assert judged(command("rm", "a"), *rules).decision == "ask"


def test_a_rule_that_stops_counts_no_uses():
    for decision in ("ask", "deny"):
        assert judged(write(), rule(decision, limited=True)).uses == ()


def test_an_administrators_question_about_a_part_of_a_line_counts_for_its_card():
    wants = rule("ask", command="b")
    assert judged(command("a", "b"), wants).from_administrator
    assert not judged(command("a"), wants).from_administrator


def test_a_command_that_cannot_be_read_is_asked_about_whatever_is_allowed():
    unread = Subject(tool="run_command", capability="shell:execute", commands=None)
    assert judged(unread, rule("allow", priority=9)).decision == "ask"
    assert judged(unread, rule("deny", tool="run_command")).decision == "deny"
    assert judged(unread, rule("allow"), mode="deny").decision == "deny"


def test_a_pattern_is_quick_whatever_it_is_held_against():
    hostile = rule("allow", path="/".join(["**", "*a*b*c*d"] * 12))
    assert judged(write("/".join(["abcabcabc"] * 120)), hostile).decision == "ask"


# ── rules made from a card ────────────────────────────────────────────────────────────────────


EXACTLY = {"digest": "d", "says": "exactly this call of t"}


@pytest.mark.parametrize(
    ("subject", "kept"),
    [
        (write("a[1].md"), {"path": "a[[]1].md", "says": "write_file on a[1].md"}),
        (
            Subject(tool="fetch_url", capability="web:network", host="x.org", digest="d"),
            {"host": "x.org", "says": "fetch_url to x.org"},
        ),
        (Subject(tool="t", capability="x:write", digest="d"), EXACTLY),
        (
            Subject(tool="t", capability="x:write", digest="d", paths=("a",), exact=True),
            EXACTLY,
        ),
        (
            Subject(tool="t", capability="x:write", digest="d", host="x.org", exact=True),
            EXACTLY,
        ),
    ],
)
def test_a_rule_from_a_card_is_as_narrow_as_the_card(subject, kept):
    found = standing(subject)
    assert found == Standing(tool=subject.tool, capability=subject.capability, **kept)
    asked = Rule(
        id="c", decision="allow", tool=found.tool, path=found.path, host=found.host,
        digest=found.digest, from_card=True,
    )  # fmt: skip
    assert judged(subject, asked).decision == "allow"


def test_there_is_no_standing_answer_to_what_is_always_asked():
    assert standing(write("skills/a.md")) is None
    assert standing(Subject(tool="c", capability="shell:execute", commands=None)) is None
