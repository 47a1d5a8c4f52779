"""How the patterns of policy rules are read. Pure, and quick whatever the texts: a pattern is an
administrator's, but what it is held against is a model's.

- name (tool, capability, host): `*` stands for any characters.
- path: `*` and `?` stay within one name, `**` stands for any number of directories: `notes/**` is
  notes and everything below it, `**/*.md` every Markdown file.
- command: words, as a shell would split them, each with `*` as in names; a last word `**` stands
  for any further words, none included: `git log **`.
"""

from __future__ import annotations

import glob
import re
import shlex
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

import idna

from agent.launchers import UNKNOWN
from agent.paths import folded

ANY_MORE = "**"
_WILD = re.compile(r"[*?\[]")


def fits_name(pattern: str, text: str) -> bool:
    """An empty pattern fits everything."""
    return not pattern or fnmatchcase(text, pattern)


def fits_path(pattern: str, path: str, *, loosely: bool) -> bool:
    """`loosely` sees through spelling: what some file system does not tell apart (`agent.paths`). A
    rule that stops something must not be got round by that."""
    spellings = (_cased, _folded) if loosely else (str,)
    return any(
        _fits(spell(pattern).split("/"), [] if path == "." else spell(path).split("/"))
        for spell in spellings
    )


def fits_words(pattern: str, words: Sequence[str], *, loosely: bool) -> bool:
    """`loosely` fits whatever the words may turn out to be: what the shell expands stands for any
    words, and a program's path for its name, in the pattern too. Else only the last `**` fits what
    the shell expands: for a single `*` it may turn out to be more words than one."""
    wanted = split(pattern)
    if loosely:
        name = words[0].rpartition("/")[2]
        spellings = {words[0], name, name.lower()}  # RM is rm on some disks
        plain = (wanted[0].rpartition("/")[2], *wanted[1:]) if wanted else wanted
        return any(
            _may_fit(each, (first, *words[1:])) for each in {wanted, plain} for first in spellings
        )
    if wanted and wanted[-1] == ANY_MORE:
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    if len(wanted) != len(words) or any(UNKNOWN in word for word in words):
        return False
    return all(map(fnmatchcase, words, wanted))


def exactly(path: str) -> str:
    """The path pattern that fits this path and no other."""
    return glob.escape(path)


def tidied(kind: str, pattern: str) -> str:
    """A pattern of a rule as it is written down: spelt as what it is held against, and never wider
    than it looks. Raises ValueError with a sentence; `kind` is the name of the rule's field."""
    check = {"path": _tidied_path, "host": _tidied_host, "command": _tidied_command}.get(kind)
    return check(pattern) if check and pattern else pattern


def _tidied_path(pattern: str) -> str:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError("A rule sees where a path leads, which never has “..” in it.")
    if pattern.endswith("/"):
        names.append(ANY_MORE)
    if not names:
        raise ValueError("This names no file. Write ** for everything in the workspace.")
    return "/".join(names)


def _tidied_host(pattern: str) -> str:
    host = pattern.lower().rstrip(".")
    if not host or re.search(r"[/@\s]|^[^:]*:\d*$", host):
        raise ValueError("A host is a name or an address, without a scheme, a port or a path.")
    return ".".join(map(_label, host.split(".")))


def _label(text: str) -> str:
    """A part of a host's name as it goes over the wire; a part with a wildcard stays."""
    try:
        return text if text.isascii() else idna.encode(text, uts46=True).decode()
    except idna.IDNAError:
        return text


def _tidied_command(pattern: str) -> str:
    try:
        words = split(pattern)
    except ValueError:
        raise ValueError("A quotation mark is not closed.") from None
    if not "".join(words):
        raise ValueError("This names no command.")
    return pattern


@lru_cache(maxsize=1024)
def split(pattern: str) -> tuple[str, ...]:
    """The words of a command pattern. Raises ValueError for an open quotation."""
    return tuple(shlex.split(pattern))


def _may_fit(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Word for word; `used` holds how many of the wanted ones may be used up so far."""
    used = {0}
    for word in words:
        if any(wanted[at : at + 1] == (ANY_MORE,) for at in used):
            return True
        next_ones = {at + 1 for at in used if at < len(wanted) and _word_may_fit(word, wanted[at])}
        if UNKNOWN in word and next_ones:  # perhaps several words
            next_ones |= set(range(min(next_ones), len(wanted) + 1))
        if word == UNKNOWN:  # perhaps none
            next_ones |= used
        used = next_ones
    return any(wanted[at:] in ((), (ANY_MORE,)) for at in used)


def _word_may_fit(word: str, wanted: str) -> bool:
    """Of a word that is known in part, what it begins with counts."""
    if UNKNOWN not in word:
        return fnmatchcase(word, wanted)
    begins, fixed = word.partition(UNKNOWN)[0], _WILD.split(wanted, maxsplit=1)[0]
    return begins.startswith(fixed) or fixed.startswith(begins)


def _cased(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _folded(text: str) -> str:
    """More than the case: see `folded`. It may make a wildcard of a letter, so a pattern is not held
    against paths in this spelling alone."""
    return "/".join(map(folded, text.split("/")))


def _fits(wanted: Sequence[str], names: Sequence[str]) -> bool:
    """Name for name. After a mismatch only the newest `**` takes one name more, so the work is
    bounded by the product of the lengths."""
    at = place = 0
    star, taken = -1, 0
    while place < len(names):
        if at < len(wanted) and wanted[at] == ANY_MORE:
            star, taken = at, place
            at += 1
        elif at < len(wanted) and fnmatchcase(names[place], wanted[at]):
            at, place = at + 1, place + 1
        elif star >= 0:
            taken += 1
            at, place = star + 1, taken
        else:
            return False
    return all(each == ANY_MORE for each in wanted[at:])
