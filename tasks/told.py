"""Sentences that the server makes (why it asks, what it refuses, evidence) in the reader's language.

They are stored and sent in English, whoever will read them. `locale/server_<language>.json` has them
as they are made, with `{name}` for what differs; a page shows what fits, and the rest in English.
The scripts do the same (static/app/told.js). What only the admin shows is in a file of its own,
`locale/server_admin_<language>.json`, so that no page has to carry it.

1. A text is looked up whole, then sentence by sentence.
2. `{n}` and other numbers fit numbers alone, `{status}`, `{what}` and `{scope}` only words that are
   in the catalogue themselves, `{why}` is looked up in its turn; anything else stays as it is. No
   value goes on behind the end of a sentence but `{said}`, which are a stranger's words.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import cast

from agent.toolbox import NOT_A_DIFF
from tasks.words import FOLDER, language

NUMBERS = ("n", "m", "used", "limit", "more", "mb", "seconds", "port", "done")
WORDS = ("scope", "status", "what")
QUOTED = "said"
MAX_TEXT = 4000
"""Characters; longer ones are nothing that the server says."""
NO_WORDS = (
    *("── command", "── what the line runs"),
    *("── arguments, as they are sent", "── what it changed"),
)
"""Headings of evidence under which others speak."""
_PLACE = re.compile(r"\{(\w+)\}")
_BETWEEN = re.compile(r"(?<=[.?!]) ")


def told(text: str) -> str:
    """What the server said, in the reader's language."""
    return told_in(language(), text)


def told_evidence(text: str) -> str:
    """What a call would do, as it is shown to whoever decides: headings, and the lines below those
    under which only the server speaks. A diff stays as it is."""
    if not text.startswith(NOT_A_DIFF):
        return text
    tag, heading, lines = language(), "", []
    for line in text.split("\n"):
        heading = line if line.startswith(f"{NOT_A_DIFF} ") else heading
        found = None if heading in NO_WORDS and line != heading else _whole(tag, line)
        lines.append(line if found is None else found)
    return "\n".join(lines)


def told_in(tag: str, text: str) -> str:
    if not _sentences(tag) or len(text) > MAX_TEXT:
        return text
    whole = _whole(tag, text)
    if whole is not None:
        return whole
    said = ""
    for sentence in _BETWEEN.split(text):
        found = _whole(tag, sentence)
        said += f" {sentence}" if found is None else found
    return said.strip()


@cache
def server_catalogue(tag: str, part: str = "") -> dict[str, str]:
    """English sentence -> translated sentence; none for English. `part`: `admin`, or empty for what
    pages show."""
    file = FOLDER / f"server_{part}{'_' if part else ''}{tag.replace('-', '_')}.json"
    if not file.is_file():
        return {}
    return cast(dict[str, str], json.loads(file.read_text(encoding="utf-8")))


@cache
def _sentences(tag: str) -> dict[str, str]:
    return {**server_catalogue(tag, "admin"), **server_catalogue(tag)}


def _whole(tag: str, text: str) -> str | None:
    catalogue = _sentences(tag)
    if text in catalogue and "{" not in text:
        return catalogue[text]
    for pattern, translated in _patterns(tag):
        found = pattern.fullmatch(text)
        values = None if found is None else _values(tag, found.groupdict())
        if values is not None:
            parts = _PLACE.split(translated)
            parts[1::2] = [values[name] for name in parts[1::2]]
            return "".join(parts)
    return None


def _values(tag: str, given: dict[str, str]) -> dict[str, str] | None:
    """What stands for the names; None: a word is not one of ours."""
    catalogue = _sentences(tag)
    if any(name in WORDS and value not in catalogue for name, value in given.items()):
        return None
    return {
        name: catalogue[value] if name in WORDS else told_in(tag, value) if name == "why" else value
        for name, value in given.items()
    }


@cache
def _patterns(tag: str) -> list[tuple[re.Pattern[str], str]]:
    """Those with the most words of their own first."""
    catalogue = _sentences(tag)
    texts = [text for text in catalogue if "{" in text]
    texts.sort(key=lambda text: (-len(_PLACE.sub("", text)), text))
    return [(re.compile(_pattern(text), re.DOTALL), catalogue[text]) for text in texts]


def _pattern(text: str) -> str:
    parts = _PLACE.split(text)  # literal, name, literal, …
    parts[0::2] = map(re.escape, parts[0::2])
    parts[1::2] = [f"(?P<{name}>{_value(name)})" for name in parts[1::2]]
    return "".join(parts)


def _value(name: str) -> str:
    if name in NUMBERS:
        return r"[\d.,e+]+"
    return ".+" if name == QUOTED else r"(?:(?![.?!] ).)+?"
