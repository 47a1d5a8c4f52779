"""Skills: named in the prompt, read on demand, bounded, and data whoever wrote them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import ToolFailed
from agent.judging import Judge
from agent.policy import Policy, Rule
from agent.skills import (
    BUILT_IN,
    MAX_CATALOGUE,
    MAX_FILE_BYTES,
    Library,
    Skill,
    catalogue,
)
from agent.text import unmark
from agent.toolbox import Toolbox, ToolContext, ToolResult
from agent.tools import builtin_tools
from agent.tools.skills import Skills
from agent.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws/skills").mkdir(parents=True)
    return tmp_path / "ws"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    (tmp_path / "server").mkdir()
    return tmp_path / "server"


@pytest.fixture
def library(server: Path) -> Library:
    return Library(server)


@pytest.fixture
def box(library: Library) -> Iterator[Toolbox]:
    box = Toolbox(builtin_tools(skills=Skills(library)))
    yield box
    box.close()


async def expand(box: Toolbox, root: Path, name: str) -> ToolResult:
    return await box.run("expand_skill", {"name": name}, ToolContext(workspace=Workspace(root)))


def put(folder: Path, name: str, text: str | bytes) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    (folder / name / "SKILL.md").write_bytes(data)


def skill(name: str, description: str = "Pays invoices.", text: str = "Pay.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{text}\n"


def known(library: Library, root: Path) -> dict[str, Skill]:
    return {each.name: each for each in library.skills(Workspace(root))}


def test_ours_are_whole_and_short() -> None:
    names = sorted(folder.name for folder in BUILT_IN.iterdir())
    ours = Library().skills(Workspace(BUILT_IN))
    assert [each.name for each in ours] == names
    assert {each.problem for each in ours} == {""}
    assert {each.source for each in ours} == {"built-in"}
    assert len(catalogue(ours)) < 1000


async def test_a_skill_is_named_in_the_prompt_and_read_on_demand(
    library: Library, box: Toolbox, root: Path
) -> None:
    put(root / "skills", "pay-invoices", skill("pay-invoices", text="# Paying\n\n1. Ask first."))
    named = catalogue(library.skills(Workspace(root)))
    assert "pay-invoices (workspace): Pays invoices." in unmark(named)
    assert "Ask first" not in named
    done = await expand(box, root, "pay-invoices")
    assert done.ok
    assert done.content.endswith("# Paying\n\n1. Ask first.")
    assert done.details["source"] == "workspace"


async def test_of_one_name_the_nearest_counts(
    library: Library, box: Toolbox, root: Path, server: Path
) -> None:
    (name, *_) = sorted(folder.name for folder in BUILT_IN.iterdir())
    assert known(library, root)[name].source == "built-in"
    put(server, name, skill(name, "The server's.", "SERVER"))
    assert known(library, root)[name].source == "server"
    assert (await expand(box, root, name)).content.endswith("SERVER")
    put(root / "skills", name, skill(name, "Ours.", "WORKSPACE"))
    assert known(library, root)[name].description == "Ours."
    assert (await expand(box, root, name)).content.endswith("WORKSPACE")
    put(root / "skills", name, "broken")
    assert known(library, root)[name].problem
    assert not (await expand(box, root, name)).ok, "nothing else stands in for it"


BROKEN: dict[str, str | bytes] = {
    "no front matter": "# Pay\n",
    "an open front matter": "---\nname: x\ndescription: y\n",
    "no YAML": skill("x", "[a"),
    "no fields": "---\n- a\n---\n",
    "nothing in it": "---\n---\ntext",
    "no description": "---\nname: x\n---\n",
    "an empty description": skill("x", '" "'),
    "a list as description": skill("x", "[a, b]"),
    "a long description": skill("x", "a" * 1025),
    "another name": skill("y"),
    "a name that is a number": skill("12"),
    "an object": skill("x", "!!python/object/apply:os.system ['true']"),
    "a local tag": skill("x", "!x y"),
    "an alias": "---\nname: &a x\ndescription: *a\n---\n",
    "a bomb": "---\na: &a [x,x]\n" + "".join(f"{c}: &{c} [*{p},*{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)) + "name: x\ndescription: y\n---\n",
    "too deep": skill("x", "[" * 3000 + "]" * 900),
    "no date": "---\nname: x\ndescription: y\nday: 2026-13-45\n---\n",
    "much in front": f"---\nname: x\ndescription: y\nmore: {'z' * 5000}\n---\n",
    "no text": b"---\nname: x\ndescription: \xff\n---\n",
    "too large": skill("x", text="z" * MAX_FILE_BYTES),
    "a quote that does not end": skill("x", "'Use when: asked"),
    "a line that is no field": skill("x", "Use when: asked\nand so on"),
    "a control character": "---\nname: x\ndescription: \x07\n---\n",
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
async def test_a_broken_skill_says_why_and_is_not_in_the_prompt(
    library: Library, box: Toolbox, root: Path, what: str
) -> None:
    put(root / "skills", "x", BROKEN[what])
    found = known(library, root)["x"]
    assert found.problem
    assert str(root) not in found.problem
    assert "x (workspace)" not in catalogue([found])
    refused = await expand(box, root, "x")
    assert not refused.ok
    assert "cannot be read" in refused.content


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff---\r\nname: x\r\ndescription: Fine\r\n---\r\ntext",
        "---\ndescription: >\n  Fine\n  \n---\ntext",
        "---\nname: x\ndescription: 'Fine'\nlicense: MIT\nmetadata:\n  a: [1, 2]\n---\n\ntext\n",
        "--- \nname: x\ndescription: Fine # yes\n---",
    ],
)
def test_what_others_write_is_read(library: Library, root: Path, text: str) -> None:
    put(root / "skills", "x", text)
    assert known(library, root)["x"].description == "Fine"
    assert library.read("x", Workspace(root))[1] == ("text" if "text" in text else "")


def test_what_is_no_skill_is_left_alone(library: Library, root: Path, tmp_path: Path) -> None:
    skills = root / "skills"
    for name in ("Upper", "two words", ".hidden", "a--b", "-a", "é", "a" * 65):
        put(skills, name, skill("x"))
    (skills / "empty").mkdir()
    (skills / "file.md").write_text(skill("file"))
    put(tmp_path, "elsewhere", skill("elsewhere"))
    (skills / "linked").symlink_to(tmp_path / "elsewhere")
    put(root, "inside", skill("inside"))
    (skills / "inside").symlink_to("../inside")
    (skills / "half").mkdir()
    (skills / "half/SKILL.md").symlink_to("../../inside/SKILL.md")
    (skills / "pipe").mkdir()
    os.mkfifo(skills / "pipe/SKILL.md")
    ours = {each.name for each in Library().skills(Workspace(tmp_path))}
    usable = {name for name, each in known(library, root).items() if not each.problem}
    assert usable == ours
    for name in ("linked", "inside", "half", "pipe"):
        with pytest.raises(ToolFailed):
            library.read(name, Workspace(root))


def test_without_folders_there_are_ours(tmp_path: Path) -> None:
    nowhere = Library(tmp_path / "gone").skills(Workspace(tmp_path / "gone, too"))
    assert nowhere == Library().skills(Workspace(tmp_path))
    assert catalogue([]) == ""


def test_the_prompt_names_the_nearest_first_and_is_bounded(
    library: Library, root: Path, server: Path
) -> None:
    for number in range(60):
        put(root / "skills", f"near-{number}", skill(f"near-{number}", "x" * 1000))
        put(server, f"far-{number}", skill(f"far-{number}", "x" * 1000))
    text = unmark(catalogue(library.skills(Workspace(root))))
    assert len(text) < MAX_CATALOGUE + 100
    lines = text.splitlines()
    assert len(lines) > 10
    assert all(line.startswith("near-") for line in lines[:-1])
    assert "not named here" in lines[-1]


@pytest.mark.parametrize("name", ["../x", "x/y", "", "X", "x" * 65, "x\n", ".", "a_b"])
async def test_a_name_is_no_path(box: Toolbox, root: Path, name: str) -> None:
    put(root, "x", skill("x"))
    assert not (await expand(box, root, name)).ok


async def test_rules_about_paths_count_for_the_workspaces_own(
    box: Toolbox, root: Path, server: Path
) -> None:
    put(root / "skills", "x", skill("x"))
    put(server, "y", skill("y"))
    closed = Rule(id="1", decision="deny", path="skills/**")
    judge = Judge(policy=Policy(rules=(closed,)), toolbox=box, workspace=Workspace(root))
    assert (await judge.decide("expand_skill", {"name": "x"})).decision == "deny"
    assert (await judge.decide("expand_skill", {"name": "y"})).decision == "allow"


@pytest.mark.parametrize(
    "front",
    [
        "name: x\ndescription: Use it when: asked",
        "description: Use it\n  when: asked\nallowed-tools: Read, Write: none",
        "# by hand\nname: x\ndescription:\n  Use it\n  when: asked\n",
        "name: x\r\ndescription: Use it when: asked\r\nmetadata:\r\n  a: b",
    ],
)
def test_a_colon_within_a_description_is_a_colon(library: Library, root: Path, front: str) -> None:
    """vercel-labs/skills#1058, bytedance/deer-flow#3333 and a score of others."""
    put(root / "skills", "x", f"---\n{front}\n---\ntext")
    assert known(library, root)["x"] == Skill(
        name="x", source="workspace", description="Use it when: asked"
    )
