"""Files as text: which encoding, which bytes back, and in which words a file could not be had.

In this order: a BOM, UTF-16 without one by its NULs, strict UTF-8 over everything that was read; a
mostly valid UTF-8 file with damaged bytes; Japanese and Korean by what only they have, GB18030,
Cyrillic and Greek by their words; at last Windows-1252. A guess from the first kilobytes is no
guess: tables often begin with pages of ASCII.
"""

from __future__ import annotations

import codecs
import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from agent.errors import ToolFailed
from agent.text import cut
from agent.workspace import Workspace

MAX_TEXT_BYTES = 8 * 1024 * 1024
"""What is read of one file."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: it begins with the same two bytes
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY = (
    b"\x89PNG\r\n", b"\xff\xd8\xff", b"\x1f\x8b", b"PK\x03\x04", b"%PDF-", b"\x7fELF",
    b"\xd0\xcf\x11\xe0", b"SQLite format 3\x00",
)  # fmt: skip
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x08\x1b")) + b"\x7f"
_MAX_CONTROLS = 0.02


class _Sign(NamedTuple):
    """How an encoding shows in the text that it gives."""

    encoding: str
    words: re.Pattern[str]
    share: float
    """Of the characters that are not ASCII, so many are in these words."""
    least: int
    """Characters of them."""


_KANA = re.compile("[ぁ-んァ-ヶー]+")
_HANGUL = re.compile("[가-힣]+")


def _words_of(upper: str, lower: str) -> re.Pattern[str]:
    """Words as people write them: in the wrong encoding small and capital letters mix."""
    letters = f"[A-Za-z{upper}{lower}]"
    return re.compile(f"(?<!{letters})(?:[{upper}]?[{lower}]{{2,}}|[{upper}]{{3,}})(?!{letters})")


_CYRILLIC = _words_of("\u0410-\u042f\u0401", "\u0430-\u044f\u0451")
_GREEK = _words_of("\u0391-\u03a9\u0386\u0388-\u038f", "\u03b1-\u03c9\u03ac-\u03ce\u0390")
_PRIVATE = re.compile("[\ue000-\uf8ff]")
"""What GB18030 makes of other encodings, and no text has."""
_EASTERN = (
    _Sign("cp932", _KANA, 0.1, 2),
    _Sign("euc_jp", _KANA, 0.25, 2),
    # Half of the common Chinese characters would be Hangul, but not twelve in a row.
    _Sign("cp949", _HANGUL, 0.9, 12),
)
_ALPHABETS = (
    *(_Sign(encoding, _CYRILLIC, 0.7, 12) for encoding in ("cp1251", "koi8_r", "cp866")),
    _Sign("cp1253", _GREEK, 0.7, 12),
)
_NOT_ASCII = re.compile("[^\x00-\x7f]")
_SAMPLE = 64 * 1024
_ACCENT_BEFORE_LETTER = re.compile(rb"[\xc0-\xff][A-Za-z]")


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """Text, and how to make bytes of it again."""

    text: str
    encoding: str
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """Bytes of `text` as this file has them. Raises UnicodeEncodeError."""
        return self.bom + text.encode(self.encoding)

    @property
    def newline(self) -> str:
        """CRLF when every line ends so, else LF: then a lone CR is content."""
        ends = self.text.count("\n")
        return "\r\n" if ends and self.text.count("\r\n") == ends else "\n"

    @property
    def lines(self) -> list[str]:
        """Without their ends. Only LF and CRLF end a line, as editors count them."""
        lines = self.text.replace("\r\n", "\n").split("\n")
        return lines if lines[-1] else lines[:-1]


def decode(data: bytes, *, whole: bool = True) -> Decoded | None:
    """The text of a file, None when it is binary. Not `whole`: a cut last character is left out."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            body = data[len(bom) :]
            text = _strict(body, encoding, whole)
            if text is None and encoding == "utf-8":
                text = body.decode(encoding, "replace")
            return None if text is None else Decoded(text=text, encoding=encoding, bom=bom)
    if data.startswith(_BINARY):
        return None
    if b"\x00" in data and (wide := _utf16(data, whole)) is not None:
        return wide
    if len(data) - len(data.translate(None, _CONTROLS)) > _MAX_CONTROLS * len(data):
        return None
    return _narrow(data, whole)


def load(workspace: Workspace, path: str) -> tuple[bytes, Decoded]:
    """The first MAX_TEXT_BYTES of a file and their text. Raises PathRefused and ToolFailed."""
    with in_words(path):
        data = workspace.read_bytes(path, MAX_TEXT_BYTES)
    decoded = decode(data, whole=len(data) < MAX_TEXT_BYTES)
    if decoded is None:
        raise ToolFailed(
            f"{cut(path, 200)} is a binary file of {size_of(workspace, path):,} bytes, not text: "
            "it cannot be shown here."
        )
    return data, decoded


def size_of(workspace: Workspace, path: str) -> int:
    with in_words(path):
        return workspace.stat(path).size


@contextmanager
def in_words(path: str) -> Iterator[None]:
    """Errors of the system about `path` as sentences that say what to do instead."""
    try:
        yield
    except OSError as error:
        said = _SENTENCES.get(error.errno or 0)
        if said is None:
            raise
        raise ToolFailed(f"{cut(path, 200)!r}: {said}") from error


_SENTENCES = {
    errno.ENOENT: "there is nothing with this name in the workspace. list_files shows what is.",
    errno.EISDIR: "this is a directory. list_files shows what is in it.",
    errno.ENOTDIR: "this is, or goes through, a file and not a directory.",
    errno.EACCES: "the server may not open it. Tell the person; do not try another way.",
    errno.EPERM: "the server may not open it. Tell the person; do not try another way.",
    errno.ENOSPC: "the disk is full. Tell the person.",
    errno.EROFS: "the workspace can only be read. Tell the person.",
}


def _strict(data: bytes, encoding: str, whole: bool) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)("strict").decode(data, final=whole)
    except UnicodeDecodeError:
        return None


def _utf16(data: bytes, whole: bool) -> Decoded | None:
    """Text with Latin letters has its NULs in every second byte only."""
    first, second = data[0::2].count(0), data[1::2].count(0)
    if min(first, second) > 0 or max(first, second) < len(data) / 10:
        return None
    encoding = "utf-16-le" if second else "utf-16-be"
    text = _strict(data, encoding, whole)
    return None if text is None else Decoded(text=text, encoding=encoding)


def _narrow(data: bytes, whole: bool) -> Decoded:
    text = _strict(data, "utf-8", whole)
    if text is not None:
        return Decoded(text=text, encoding="utf-8")
    repaired = data.decode("utf-8", "replace")
    bad = repaired.count("\ufffd")
    good = _wide(repaired) - bad
    if good <= 4 * bad:
        found = _telling(data, whole, _EASTERN) or _chinese(data, whole)
        if found := found or _telling(data, whole, _ALPHABETS):
            return found
    if good:
        return Decoded(text=repaired, encoding="utf-8")
    text = _strict(data, "cp1252", whole)
    if text is not None:
        return Decoded(text=text, encoding="cp1252")
    return Decoded(text=data.decode("latin-1"), encoding="latin-1")


def _chinese(data: bytes, whole: bool) -> Decoded | None:
    text = _strict(data, "gb18030", whole)
    if text is None or _looks_latin(data, text):
        return None
    other = _strict(data, "big5", whole) if _PRIVATE.search(text) else None
    if other is not None:
        return Decoded(text=other, encoding="big5")
    return Decoded(text=text, encoding="gb18030")


def _telling(data: bytes, whole: bool, signs: Sequence[_Sign]) -> Decoded | None:
    """In the first encoding by which the text has what only its own language has."""
    for sign in signs:
        text = _strict(data, sign.encoding, whole)
        if text is None:
            continue
        sample = _sample(text)
        letters = sum(map(len, sign.words.findall(sample)))
        if letters >= max(sign.least, sign.share * _wide(sample)):
            return Decoded(text=text, encoding=sign.encoding)
    return None


def _sample(text: str) -> str:
    """As much as shows its language, from where it is more than ASCII."""
    found = _NOT_ASCII.search(text)
    return text[found.start() :][:_SAMPLE] if found else ""


def _looks_latin(data: bytes, text: str) -> bool:
    """`ü` of Latin-1 and the letter behind it also are a rare Chinese character."""
    return 2 * len(_ACCENT_BEFORE_LETTER.findall(data)) > _wide(text)


def _wide(text: str) -> int:
    """Characters that are not ASCII."""
    return len(text) - len(text.encode("ascii", "ignore"))
