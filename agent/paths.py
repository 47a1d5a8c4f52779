"""What a path may look like before anything is opened: pure rules on text.

Names are taken literally. A name that could pass for another one (not in Unicode NFC form) may be
read but not written; control and direction characters are refused always, and so is everything
that is absolute somewhere: `/`, `~`, a drive letter, a URL. Whether a path stays inside the
workspace in truth, links and races included, is decided while opening it (`agent.beneath`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence

from agent.errors import PathRefused

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 32
INSTRUCTIONS = frozenset({"memory", "skills"})
"""Top folders of a workspace that `always_asks` is about."""
TEMPORARY = re.compile(r"\.pilothouse-[0-9a-f]{16}\.tmp")
"""Names of our own half-written files: nobody lists them, and no tool may write one."""

Look = Callable[[Sequence[str]], None]
"""Sees a place, as names from the root, before it is entered or made; raises to refuse it."""

_UNSAFE_CHARACTER = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNSEEN_CHARACTER = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
"""What Unicode calls default-ignorable, as far as it is not refused above: some file systems look
past it, too."""
_DRIVE_OR_SCHEME = re.compile(r"[A-Za-z]:|[A-Za-z][A-Za-z0-9+.-]*://")


def refused(why: str) -> PathRefused:
    """A refusal that teaches."""
    return PathRefused(
        f"Refused by workspace policy: {why}. Allowed are relative paths inside the workspace, "
        "such as notes/report.md. Do not try another way to reach it."
    )


def normal(path: str) -> str:
    """The path without empty and `.` components, or a refusal."""
    if not path:
        raise refused("the path is empty")
    if path.startswith(("/", "~")) or _DRIVE_OR_SCHEME.match(path):
        raise refused("the path is not relative")
    if "\\" in path:
        raise refused("a backslash is not a separator here")
    if _UNSAFE_CHARACTER.search(path):
        raise refused("the path contains control or direction characters")
    names = [name for name in path.split("/") if name not in ("", ".")]
    _check_size(names)
    return "/".join(names) or "."


def file_path(path: str) -> str:
    """The same for a path that has to name a file."""
    name = normal(path)
    if path.endswith(("/", "/.", "/..")) or name == ".":
        raise refused("the path names a directory, not a file")
    return name


def writable_path(path: str) -> str:
    """The same for a file that is to be written."""
    name = file_path(path)
    if not unicodedata.is_normalized("NFC", name):
        raise refused("a name to be written must be in Unicode NFC form")
    if _UNSEEN_CHARACTER.search(name):
        raise refused("a name to be written must not hold characters that cannot be seen")
    if TEMPORARY.fullmatch(name.rpartition("/")[2]):
        raise refused("names like this are for temporary files of the server")
    return name


def forbid(forbidden: Collection[str]) -> Look:
    """Refuses top directories, named as `folded` gives them."""

    def look(way: Sequence[str]) -> None:
        if folded(way[0]) in forbidden:
            raise refused(f"{way[0]}/ is not written by this tool")

    return look


def folded(name: str) -> str:
    """One spelling for all names that some file system takes for the same: case, width and
    ligatures, characters that cannot be seen, dots and spaces at the end."""
    seen = _UNSEEN_CHARACTER.sub("", unicodedata.normalize("NFKC", name))
    return unicodedata.normalize("NFKC", seen.casefold()).rstrip(". ")


def always_asks(path: str) -> bool:
    """Whether a write there is put to a person whatever the rules say: what lies in these folders
    is read as instructions by later runs. Also for a path whose links are not resolved."""
    way: list[str] = []
    for name in path.split("/"):
        if name == "..":
            del way[-1:]
        elif name not in ("", "."):
            way.append(name)
    return bool(way) and folded(way[0]) in INSTRUCTIONS


def _check_size(names: Sequence[str]) -> None:
    sizes = [len(name.encode()) for name in names]
    if sum(sizes) + len(sizes) > MAX_PATH_BYTES or max(sizes, default=0) > MAX_NAME_BYTES:
        raise refused(
            f"a name has at most {MAX_NAME_BYTES} bytes and a path at most {MAX_PATH_BYTES}"
        )
    if len(names) > MAX_DEPTH:
        raise refused(f"the path is deeper than {MAX_DEPTH} levels")
    depth = 0
    for name in names:
        depth += -1 if name == ".." else 1
        if depth < 0:
            raise refused("the path leads out of the workspace")
