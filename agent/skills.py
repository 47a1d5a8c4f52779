"""Skills: how a kind of work is done, written down by people and read by the agent when it fits.

A skill is a folder with a `SKILL.md`: YAML front matter with `name` and `description`, then the
text. The prompt names them all (bounded); `expand_skill` reads one. They come, in this order, from
Pilothouse itself, from the server's folder (PILOTHOUSE_SKILLS_DIR) and from `skills/` of the
workspace; of two with one name the later counts. Everything in them is data, whoever wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

from agent.errors import PathRefused, ToolFailed
from agent.text import clean, cut, mark_untrusted
from agent.workspace import Workspace

BUILT_IN = Path(__file__).resolve().parent / "prompts" / "skills"
FOLDER = "skills"
NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
MAX_NAME = 64
MAX_DESCRIPTION = 1024
"""Characters of a description."""
MAX_FILE_BYTES = 32 * 1024
MAX_FRONT = 2 * 1024
"""Characters of a front matter."""
MAX_SKILLS = 50
"""Of one source."""
MAX_CATALOGUE = 4 * 1024
"""Characters of all of them in the prompt."""

_NAME = re.compile(NAME)
_FRONT = re.compile(r"---[ \t]*\r?\n(.*?)(?:^|\n)---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_FLOW = re.compile(r"[\[{]")
MAX_FLOW = 32
"""Opening brackets: the parser's time grows with the square of how deep they stand."""
_PLAIN_FIELD = re.compile(r"([A-Za-z][\w-]*):(?:[ \t]+(.*)|()[ \t]*)")
_NOT_PLAIN = frozenset("'\"[]{}|>&*!%@`,?-")
"""With what a text begins that is none in YAML."""
_REFERENCES = (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)
"""What a few lines of plain fields do not need, and what can make much of little."""


class SkillBroken(Exception):
    """What stands in a SKILL.md cannot be used; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One that can be read, or why it cannot."""

    name: str
    """Of its folder."""
    source: str
    """built-in, server or workspace"""
    description: str = ""
    problem: str = ""

    @property
    def path(self) -> str:
        """Of its file in the workspace; empty: it is not of the workspace."""
        return f"{FOLDER}/{self.name}/SKILL.md" if self.source == "workspace" else ""


@dataclass(frozen=True)
class Library:
    """Where skills come from beside the workspace."""

    server: Path | None = None
    """PILOTHOUSE_SKILLS_DIR"""

    def skills(self, workspace: Workspace) -> list[Skill]:
        """Those that count, by name, broken ones with their problem. Reads files."""
        found = {skill.name: skill for skill in ours()}
        for source, folder, below in self._sources(workspace)[1:]:
            found |= {skill.name: skill for skill in _skills(source, folder, below)}
        return [found[name] for name in sorted(found)]

    def read(self, name: str, workspace: Workspace) -> tuple[Skill, str]:
        """One of them with its text. Raises ToolFailed."""
        problem = ""
        for source, folder, below in reversed(self._sources(workspace)):
            try:
                description, text = _parsed(name, folder, below)
            except FileNotFoundError:
                continue
            except (SkillBroken, PathRefused, OSError) as error:
                problem = problem or f"The skill {name} cannot be read: {_why(error)}"
                break
            return Skill(name=name, source=source, description=description), text
        raise ToolFailed(problem or f"There is no skill {cut(name, 100)!r}.")

    def _sources(self, workspace: Workspace) -> list[tuple[str, Workspace, str]]:
        """Each with the folder that it is read through and the place in there, the nearest last."""
        found = [("built-in", _OURS, ".")]
        if self.server is not None:
            found.append(("server", Workspace(self.server, links=False), "."))
        return [*found, ("workspace", workspace.unlinked(), FOLDER)]


def catalogue(skills: Sequence[Skill]) -> str:
    """What the prompt says of them, marked as data; the nearest first when there is too much."""
    usable = [skill for skill in skills if not skill.problem]
    usable.sort(key=lambda skill: _NEAREST[skill.source])
    lines: list[str] = []
    room = MAX_CATALOGUE
    for skill in usable:
        line = f"{skill.name} ({skill.source}): {cut(skill.description, room // 4)}"
        room -= len(line) + 1
        if room < 0:
            lines.append(f"[{len(usable) - len(lines)} more are not named here.]")
            break
        lines.append(line)
    return mark_untrusted("\n".join(lines), FOLDER) if lines else ""


_OURS = Workspace(BUILT_IN, links=False)
_NEAREST = {"workspace": 0, "server": 1, "built-in": 2}


@cache
def ours() -> tuple[Skill, ...]:
    """Those of Pilothouse itself, by name: they change with the program only."""
    return tuple(_skills("built-in", _OURS, "."))


# ── reading ───────────────────────────────────────────────────────────────────────────────────


def _skills(source: str, folder: Workspace, below: str) -> Iterator[Skill]:
    try:
        entries = folder.page(below, limit=MAX_SKILLS).entries
    except (PathRefused, OSError):
        return  # there are none, or they are closed to us
    for entry in entries:
        name = entry.path.rpartition("/")[2]
        if entry.kind != "directory" or not _is_name(name):
            continue
        try:
            description, _ = _parsed(name, folder, below)
        except FileNotFoundError:
            continue  # a folder beside them
        except (SkillBroken, PathRefused, OSError) as error:
            yield Skill(name=name, source=source, problem=_why(error))
        else:
            yield Skill(name=name, source=source, description=description)


def _is_name(name: str) -> bool:
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _why(error: Exception) -> str:
    return (error.strerror or "it cannot be opened") if isinstance(error, OSError) else str(error)


def _parsed(name: str, folder: Workspace, below: str) -> tuple[str, str]:
    """Description and text of a skill. Raises SkillBroken, PathRefused, OSError."""
    path = f"{name}/SKILL.md" if below == "." else f"{below}/{name}/SKILL.md"
    data = folder.read_bytes(path, MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise SkillBroken(f"SKILL.md has more than {MAX_FILE_BYTES:,} bytes.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SkillBroken("SKILL.md is no UTF-8 text.") from None
    found = _FRONT.match(text)
    if found is None or len(found[1]) > MAX_FRONT:
        raise SkillBroken(
            f"SKILL.md must begin with front matter of at most {MAX_FRONT:,} characters: "
            "a line ---, name and description, a line ---."
        )
    given, description = _front(clean(found[1]))
    if given not in ("", name):
        raise SkillBroken(f"Its name is {cut(given, MAX_NAME)!r}, its folder's is {name!r}.")
    return description, clean(text[found.end() :]).strip()


def _front(text: str) -> tuple[str, str]:
    """Name and description of a front matter. Raises SkillBroken."""
    fields = _fields(text)
    if isinstance(fields, str):
        raise SkillBroken(fields)
    name, description = fields.get("name", ""), fields.get("description")
    if not isinstance(name, str) or not isinstance(description, str) or not description.strip():
        raise SkillBroken("Its name and description must be text, and the description not empty.")
    one_line = " ".join(description.split())
    if len(one_line) > MAX_DESCRIPTION:
        raise SkillBroken(f"Its description has more than {MAX_DESCRIPTION:,} characters.")
    return name, one_line


@lru_cache(1024)  # every run reads them, and the worst take a tenth of a second
def _fields(text: str) -> dict[Any, Any] | str:
    """What stands in a front matter, or what is wrong with it."""
    if len(_FLOW.findall(text)) > MAX_FLOW:
        return f"Its front matter has more than {MAX_FLOW} brackets."
    try:
        if any(isinstance(token, _REFERENCES) for token in yaml.scan(text, yaml.SafeLoader)):
            return "Its front matter has anchors, aliases or tags."
        fields = yaml.safe_load(text)
    except yaml.MarkedYAMLError:
        return _plain_fields(text) or "Its front matter is no YAML."
    except (yaml.YAMLError, RecursionError, ValueError):
        return "Its front matter is no YAML."
    return fields if isinstance(fields, dict) else "Its front matter has no fields."


def _plain_fields(text: str) -> dict[str, str]:
    """Lines of plain text behind their names, for what most people get wrong in YAML: a colon within
    a description. Empty: it is not that."""
    fields: dict[str, str] = {}
    name = ""
    for line in re.split(r"\r?\n", text):
        if found := _PLAIN_FIELD.fullmatch(line):
            name = found[1]
            fields[name] = (found[2] or "").strip()
        elif name and line[:1] in (" ", "\t", ""):
            fields[name] = f"{fields[name]} {line.strip()}".strip()
        elif not line.startswith("#"):
            return {}
    told = [fields.get(each, "") for each in ("name", "description")]
    return {} if any(each[:1] in _NOT_PLAIN for each in told if each) else fields
