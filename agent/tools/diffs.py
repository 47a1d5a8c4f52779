"""Unified diffs as evidence: right for every text, small for most, bounded in time and size.

difflib alone is quadratic and worse. Equal ends are taken off first, lines that occur once in both
texts are anchors (patience diff), and only small gaps between anchors go to difflib; a big gap
without anchors is shown as removed and added whole, which is longer but just as true.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

CONTEXT = 3
MAX_DIFF = 200 * 1024
"""Characters shown of one diff."""
_SMALL_GAP = 40_000
"""Lines of the one side times lines of the other."""
_WORK = 1_000_000
"""The same, for all gaps of one diff together."""
_MAX_ROUNDS = 8


class Block(NamedTuple):
    """Lines that are equal in both."""

    old: int
    new: int
    size: int


class Change(NamedTuple):
    """Lines old[a:b] became new[c:d]."""

    a: int
    b: int
    c: int
    d: int


def unified(path: str, old: str | None, new: str) -> str:
    """The diff from `old` (None: there is no file) to `new`, at most MAX_DIFF characters and a
    statement of what is left out. Empty when nothing changes."""
    if old == new:
        return ""
    before, after = split_lines(old or ""), split_lines(new)
    shown = [
        "--- /dev/null\n" if old is None else f"--- a/{path}\n",
        f"+++ b/{path}\n",
    ]
    for hunk in _hunks(changes(before, after)):
        shown += _hunk(hunk, before, after)
    return _bounded(shown)


def split_lines(text: str) -> list[str]:
    """With their ends. Only LF ends a line: str.splitlines() knows ten more ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def changes(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """What differs, in order."""
    found = []
    at_old = at_new = 0
    for block in (*_Matcher(old, new).blocks(), Block(len(old), len(new), 0)):
        if at_old < block.old or at_new < block.new:
            found.append(Change(at_old, block.old, at_new, block.new))
        at_old, at_new = block.old + block.size, block.new + block.size
    return found


class _Matcher:
    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        self._old = old
        self._new = new
        self._work = _WORK

    def blocks(self) -> Iterator[Block]:
        return self._match(Change(0, len(self._old), 0, len(self._new)), 0)

    def _match(self, gap: Change, rounds: int) -> Iterator[Block]:
        """Equal blocks inside a gap, in order."""
        a, b, c, d = gap
        head = _equal(self._old[a:b], self._new[c:d])
        a, c = a + head, c + head
        tail = _equal(self._old[a:b][::-1], self._new[c:d][::-1])
        yield Block(a - head, c - head, head)
        yield from self._middle(Change(a, b - tail, c, d - tail), rounds)
        yield Block(b - tail, d - tail, tail)

    def _middle(self, gap: Change, rounds: int) -> Iterator[Block]:
        a, b, c, d = gap
        cells = (b - a) * (d - c)
        if cells <= min(_SMALL_GAP, self._work):
            self._work -= cells
            matcher = SequenceMatcher(None, self._old[a:b], self._new[c:d], autojunk=False)
            yield from (Block(a + i, c + j, n) for i, j, n in matcher.get_matching_blocks() if n)
        elif rounds < _MAX_ROUNDS:
            for anchored in self._between_anchors(gap):
                yield from self._match(anchored, rounds + 1)

    def _between_anchors(self, gap: Change) -> Iterator[Change]:
        """Pieces of the gap that each begin with an anchor; none without anchors."""
        anchors = self._anchors(gap)
        if not anchors:
            return
        yield Change(gap.a, anchors[0][0], gap.c, anchors[0][1])
        for (i, j), (k, m) in zip(anchors, [*anchors[1:], (gap.b, gap.d)], strict=True):
            yield Change(i, k, j, m)

    def _anchors(self, gap: Change) -> list[tuple[int, int]]:
        """Lines that occur once on both sides, as many as keep their order."""
        old, new = self._old[gap.a : gap.b], self._new[gap.c : gap.d]
        once = {line for line, count in Counter(new).items() if count == 1}
        once &= {line for line, count in Counter(old).items() if count == 1}
        place = {line: number for number, line in enumerate(new) if line in once}
        pairs = [(number, place[line]) for number, line in enumerate(old) if line in once]
        return [(gap.a + i, gap.c + j) for i, j in _increasing(pairs)]


def _equal(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines are equal from the start."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence in which the second number increases."""
    ends: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for number, (_, value) in enumerate(pairs):
        pile = bisect_left(ends, value)
        before.append(piles[pile - 1] if pile else -1)
        if pile == len(ends):
            ends.append(value)
            piles.append(number)
        else:
            ends[pile], piles[pile] = value, number
    chain = []
    at = piles[-1] if piles else -1
    while at >= 0:
        chain.append(pairs[at])
        at = before[at]
    return chain[::-1]


def _hunks(found: list[Change]) -> Iterator[list[Change]]:
    """Changes whose context touches belong together."""
    group: list[Change] = []
    for change in found:
        if group and change.a - group[-1].b > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _hunk(group: list[Change], old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    first, last = group[0], group[-1]
    lead = min(CONTEXT, first.a)
    trail = min(CONTEXT, len(old) - last.b)
    yield (
        f"@@ -{_range(first.a - lead, last.b + trail)} +{_range(first.c - lead, last.d + trail)} @@\n"
    )
    at = first.a - lead
    for change in group:
        yield from _marked(" ", old[at : change.a])
        yield from _marked("-", old[change.a : change.b])
        yield from _marked("+", new[change.c : change.d])
        at = change.b
    yield from _marked(" ", old[at : at + trail])


def _range(start: int, end: int) -> str:
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        yield (
            mark + line if line.endswith("\n") else f"{mark}{line}\n\\ No newline at end of file\n"
        )


def _bounded(shown: list[str]) -> str:
    room = MAX_DIFF
    for number, line in enumerate(shown):
        if len(line) > room:
            rest = sum(len(each) for each in shown[number:]) - room
            return (
                "".join(shown[:number]) + line[:room] + f"\n[… the diff is cut here: {rest:,} more "
                f"characters on {len(shown) - number:,} lines are not shown …]\n"
            )
        room -= len(line)
    return "".join(shown)
