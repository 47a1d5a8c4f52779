"""One word of a shell line, scanned as bash does it: quotes off, what expands marked. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from agent.launchers import UNKNOWN, Unsure

Nested = Callable[[int], int]
"""(where a substitution begins) -> where it ends. Raises Unsure."""

_PLAIN = re.compile(r"[^\s\\'\"`$(){}<>|&;*?\[~#]+")
_QUOTED = re.compile(r'[^"\\$`]+')
_RAW = re.compile(r"'([^']*)'")
_VARIABLE = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])"
    r"|\$\{#?[A-Za-z_][A-Za-z0-9_]*\}"
    r"|\$\{[A-Za-z_][A-Za-z0-9_]*(?::?[-+]|##?|%%?|//?|\^\^?|,,?)[A-Za-z0-9_./ *?-]*\}"
    r"|\$\(\([0-9 +*/%-]+\)\)"
)
_TEST = re.compile(
    r"""\[(?P<double>\[)?\ (?:!\ )?(?:
        (?:-[abcdefghknprstuwxzLNSGO]\ )?(?:{word})
        | (?:{word})\ (?:=|==|!=|(?(double)(?!)|-(?:eq|ne|lt|le|gt|ge|nt|ot|ef)))\ (?:{word})
    )\ \](?(double)\])""".replace(
        "{word}",
        r""""[^"`$\\]*"|"\$\{?[A-Za-z_][A-Za-z0-9_]*\}?"|"\$[0-9]"|'[^']*'|[\w./][\w./-]*""",
    ),
    re.VERBOSE | re.ASCII,
)
_CASE_PATTERN = re.compile(r"[\w.,/*?:@%+=-]+|\"[^\"`$\\]*\"|'[^']*'", re.ASCII)
_BODY_RUNS = re.compile(r"[\\`]|\$[({\[]")


def scan(text: str, start: int, end: int, nested: Nested) -> str:
    """The word text[start:end]; UNKNOWN stands for what expands. Raises Unsure."""
    return _Scan(text, start, end, nested).word()


def runs_nothing(text: str) -> bool:
    """Whether an expanded here-document has plain variables at most."""
    return not _BODY_RUNS.search(_VARIABLE.sub("", text))


def is_plain_test(text: str) -> bool:
    """Whether a test in brackets has one of the forms that evaluate nothing."""
    return _TEST.fullmatch(text) is not None


def is_plain_pattern(text: str) -> bool:
    """Whether a pattern of `case` expands nothing."""
    return _CASE_PATTERN.fullmatch(text) is not None


class _Scan:
    def __init__(self, text: str, start: int, end: int, nested: Nested) -> None:
        self._text = text
        self._start = self._at = start
        self._end = end
        self._nested = nested
        self._bare = ""
        """What stands outside quotes."""

    def word(self) -> str:
        pieces = []
        while self._at < self._end:
            pieces.append(self._piece(self._text[self._at]))
        if "{" in self._bare and ("," in self._bare or ".." in self._bare):
            return UNKNOWN  # braces make several words of one
        return "".join(pieces)

    def _piece(self, character: str) -> str:
        if character == "'":
            return self._take(_RAW)[1]
        if character == '"':
            return self._double()
        if character == "\\":
            return self._escaped()
        if character in "$`" or self._text[self._at : self._at + 2] in ("<(", ">("):
            return self._expansion(quoted=False)
        return self._bare_piece(character)

    def _bare_piece(self, character: str) -> str:
        begins = self._at == self._start
        if character in "*?[":
            self._at += 1
            return UNKNOWN
        if character == "~":
            self._at += 1
            return UNKNOWN if begins or self._text[self._at - 2] in "=:" else character
        if character in "{}" or (character == "#" and not begins):
            self._at += 1
            self._bare += character
            return character
        taken = self._take(_PLAIN)[0]
        self._bare += taken
        return taken

    def _double(self) -> str:
        self._at += 1
        pieces = []
        while self._text[self._at : self._at + 1] != '"':
            if self._at >= self._end:
                raise Unsure
            character = self._text[self._at]
            if character == "\\":
                pieces.append(self._escaped('"\\$`'))
            elif character in "$`":
                pieces.append(self._expansion(quoted=True))
            else:
                pieces.append(self._take(_QUOTED)[0])
        self._at += 1
        return "".join(pieces)

    def _escaped(self, special: str = "") -> str:
        """In double quotes a backslash escapes the special ones only."""
        escaped = self._text[self._at + 1 : min(self._at + 2, self._end)]
        if escaped in ("", "\n"):
            raise Unsure
        self._at += 2
        return escaped if not special or escaped in special else f"\\{escaped}"

    def _expansion(self, *, quoted: bool) -> str:
        variable = _VARIABLE.match(self._text, self._at, self._end)
        following = self._text[self._at + 1 : min(self._at + 2, self._end)]
        if variable:
            self._at = variable.end()
        elif following == "(" or self._text[self._at] == "`":
            self._at = self._nested(self._at)
        elif self._text[self._at] == "$" and following in (*_AFTER_DOLLAR, '"' if quoted else ""):
            self._at += 1
            return "$"
        else:
            raise Unsure
        return UNKNOWN

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at, self._end)
        if found is None:
            raise Unsure
        self._at = found.end()
        return found


_AFTER_DOLLAR = tuple(" /.,:;|)%^+=")
"""A dollar before one of these is a dollar."""
