"""Diffs are evidence: they say exactly what happens, for every pair of texts, in bounded time."""

from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from agent.tools.diffs import MAX_DIFF, changes, split_lines, unified

NO_END = "\\ No newline at end of file\n"


def apply(diff: str, old: str) -> str:
    """The new text, from the old one and a diff; checks every line number and context line."""
    before, after = split_lines(old), ""
    at = 0
    lines = split_lines(diff)[2:]
    for number, line in enumerate(lines):
        follows = lines[number + 1] if number + 1 < len(lines) else ""
        text = line[1:-1] if follows == NO_END else line[1:]
        match line[0]:
            case "@":
                found = re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@\n", line)
                assert found
                start, size, there, _ = map(int, found.groups())
                start -= 1 if size else 0
                after += "".join(before[at:start])
                at = start
                assert len(split_lines(after)) == there - (1 if int(found[4]) else 0)
            case " ":
                assert before[at] == text
                after += text
                at += 1
            case "-":
                assert before[at] == text
                at += 1
            case "+":
                after += text
            case mark:
                assert (mark, line) == ("\\", NO_END)
    return after + "".join(before[at:])


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", "d\u2028e\r\n", "last"]), max_size=40)


@given(old=LINES, new=LINES)
def test_a_diff_applied_to_the_old_text_gives_the_new_one(old, new):
    before, after = "".join(old), "".join(new)
    diff = unified("f", before, after)
    assert (diff == "") == (before == after)
    if diff:
        assert apply(diff, before) == after


def test_a_small_change_is_a_small_diff_with_real_line_numbers():
    old = "".join(f"line {number}\n" for number in range(1, 101))
    new = old.replace("line 50\n", "line fifty\n")
    assert unified("notes/a.md", old, new) == (
        "--- a/notes/a.md\n+++ b/notes/a.md\n@@ -47,7 +47,7 @@\n"
        " line 47\n line 48\n line 49\n-line 50\n+line fifty\n line 51\n line 52\n line 53\n"
    )


def test_a_missing_newline_at_the_end_is_shown():
    assert unified("f", "a\nb", "a\nb\n").endswith("-b\n\\ No newline at end of file\n+b\n")
    assert unified("f", "", "x").endswith("@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n")


def test_a_new_file_is_told_from_an_empty_one():
    assert unified("f", None, "x\n") == "--- /dev/null\n+++ b/f\n@@ -0,0 +1,1 @@\n+x\n"
    assert unified("f", "", "x\n").startswith("--- a/f\n")
    assert unified("f", None, "") == "--- /dev/null\n+++ b/f\n"
    assert unified("f", "same", "same") == ""


def test_far_changes_of_a_long_file_stay_apart():
    """Longer than difflib could compare in time; lines that occur once are the anchors."""
    lines = [f"line {number}\n" for number in range(50_000)]
    edited = ["first\n", *lines[1:20_000], "in the middle\n", *lines[20_010:-1], "last\n"]
    diff = unified("f", "".join(lines), "".join(edited))
    assert diff.count("@@ -") == 3
    assert len(split_lines(diff)) < 40
    assert apply(diff, "".join(lines)) == "".join(edited)


def test_texts_without_anything_to_hold_on_to_take_bounded_time():
    shuffle = random.Random(1).choices(["x\n", "y\n", "z\n"], k=40_000)
    reversed_lines = [f"{number}\n" for number in range(20_000)]
    for old, new in (
        (shuffle, shuffle[::-1]),
        (reversed_lines, reversed_lines[::-1]),
        (shuffle, reversed_lines),
        (shuffle[:190] * 50, shuffle[5:190] * 50),
    ):
        rebuilt: list[str] = []
        at = 0
        for change in changes(old, new):
            rebuilt += old[at : change.a] + new[change.c : change.d]
            at = change.b
        assert rebuilt + old[at:] == new


def test_a_long_diff_is_cut_and_says_what_is_missing():
    many = unified("f", None, "".join(f"line {number}\n" for number in range(100_000)))
    assert len(many) < MAX_DIFF + 200
    assert re.search(r"cut here: [\d,]+ more characters on [\d,]+ lines are not shown", many)
    one = unified("f", None, "x" * 1_000_000)
    assert len(one) < MAX_DIFF + 200
    assert "cut here" in one
