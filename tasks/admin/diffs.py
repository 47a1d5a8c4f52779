"""A unified diff as rows of a table: number, sign, text, with the changed words of a line marked.

Evidence that is no diff (what a command would run, and where) is rows of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

from agent.toolbox import NOT_A_DIFF
from tasks.admin.words import say, visible

MAX_LINES = 400
"""Rows of one diff in a log; the approval's own page shows all."""
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_WORDS = 200
"""Longer lines are marked whole: comparing words is quadratic."""

Part = tuple[str, bool]
"""Text, and whether it differs."""


@dataclass(frozen=True, kw_only=True)
class DiffRow:
    """One line: kind is a (added), d (deleted), c (context) or n (a note or the start of a hunk)."""

    kind: str
    number: int | None = None
    parts: tuple[Part, ...] = ()

    @property
    def sign(self) -> str:
        return {"a": "+", "d": "−"}.get(self.kind, "")  # noqa: RUF001 - the minus that is as wide as +


@dataclass(frozen=True, kw_only=True)
class Diff:
    """What a call would change."""

    rows: tuple[DiffRow, ...]
    added: int
    deleted: int
    left_out: int = 0

    @property
    def size(self) -> str:
        """Empty for evidence that is no diff."""
        if self.rows and not (self.added or self.deleted):
            return ""
        parts = [f"+{self.added}" if self.added else "", f"−{self.deleted}" if self.deleted else ""]  # noqa: RUF001
        return " ".join(part for part in parts if part) or say("nothing")


def parse(text: str, limit: int | None = MAX_LINES) -> Diff | None:
    """None when there is no diff."""
    if not text:
        return None
    shows = _lines if text.startswith(NOT_A_DIFF) else _rows
    rows = list(_with_words(list(shows(text))))
    shown = rows if limit is None else rows[:limit]
    return Diff(
        rows=tuple(shown),
        added=sum(row.kind == "a" for row in rows),
        deleted=sum(row.kind == "d" for row in rows),
        left_out=len(rows) - len(shown),
    )


def _lines(text: str) -> Iterator[DiffRow]:
    for line in visible(text).removesuffix("\n").split("\n"):
        yield DiffRow(kind="c", parts=((line, False),) if line else ())


def _rows(text: str) -> Iterator[DiffRow]:
    """Numbers: the old one of a deleted line, the new one of the others."""
    old = new = 0
    in_hunk = False
    for line in visible(text).removesuffix("\n").split("\n"):
        found = _HUNK.match(line)
        if found:
            if in_hunk:
                yield DiffRow(kind="n", parts=(("…", False),))
            in_hunk, old, new = True, int(found[1]), int(found[2])
        elif not in_hunk:
            continue  # the names of the file: the sentence has them
        elif line[:1] in ("+", "-", " "):
            yield _row(line, old, new)
            old += line[0] in "- "
            new += line[0] in "+ "
        else:
            yield DiffRow(kind="n", parts=((line.removeprefix("\\ "), False),))


def _row(line: str, old: int, new: int) -> DiffRow:
    kind = {"+": "a", "-": "d", " ": "c"}[line[0]]
    return DiffRow(
        kind=kind,
        number=old if kind == "d" else new,
        parts=((line[1:], False),) if line[1:] else (),
    )


def _with_words(rows: list[DiffRow]) -> Iterator[DiffRow]:
    """As many deleted lines as added ones behind them: line by line the same place, so their
    words are compared."""
    at = 0
    while at < len(rows):
        deleted = _run(rows, at, "d")
        added = _run(rows, at + len(deleted), "a")
        if not deleted or len(deleted) != len(added):
            yield rows[at]
            at += 1
            continue
        pairs = [_compared(old, new) for old, new in zip(deleted, added, strict=True)]
        yield from (old for old, _ in pairs)
        yield from (new for _, new in pairs)
        at += len(deleted) + len(added)


def _run(rows: list[DiffRow], at: int, kind: str) -> list[DiffRow]:
    end = at
    while end < len(rows) and rows[end].kind == kind:
        end += 1
    return rows[at:end]


def _compared(old: DiffRow, new: DiffRow) -> tuple[DiffRow, DiffRow]:
    before, after = (_WORD.findall("".join(text for text, _ in row.parts)) for row in (old, new))
    if not before or not after or max(len(before), len(after)) > _MAX_WORDS:
        return old, new
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    if matcher.ratio() < 0.3:  # two different lines: marks would only be noise
        return old, new
    left: list[Part] = []
    right: list[Part] = []
    for tag, a, b, c, d in matcher.get_opcodes():
        changed = tag != "equal"
        left += [("".join(before[a:b]), changed)] if b > a else []
        right += [("".join(after[c:d]), changed)] if d > c else []
    return (
        DiffRow(kind="d", number=old.number, parts=tuple(left)),
        DiffRow(kind="a", number=new.number, parts=tuple(right)),
    )
