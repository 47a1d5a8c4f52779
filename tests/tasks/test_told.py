"""What the server says in English is read in the reader's language, where the catalogue has it."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.utils import translation

from agent.policy import Mode, Policy, Rule, Subject
from config.env import ROOT
from tasks.told import server_catalogue, told, told_in

DATA = Path(__file__).parent / "data"
CASES = json.loads((DATA / "told.json").read_text())
OF_THE_ADMIN = json.loads((DATA / "told_admin.json").read_text())
CHINESE = "zh-Hans"
ALL = {**server_catalogue(CHINESE), **server_catalogue(CHINESE, "admin")}


@pytest.mark.parametrize(("english", "chinese"), [*CASES, *OF_THE_ADMIN])
def test_a_sentence_is_read_in_chinese(english: str, chinese: str) -> None:
    assert told_in(CHINESE, english) == chinese


def test_in_english_it_stays_as_it_is() -> None:
    with translation.override("en"):
        assert told("default: file:write asks") == "default: file:write asks"
    with translation.override("zh-hans"):
        assert told(CASES[0][0]) == CASES[0][1]


def test_no_translation_loses_a_value_and_none_is_left_out() -> None:
    for english, chinese in ALL.items():
        assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), english
        assert english.startswith(" ") == chinese.startswith(" "), english
        assert len(re.findall(r"\{\w+\}", english)) == len(set(re.findall(r"\{\w+\}", english)))


def test_what_the_admin_alone_shows_is_carried_by_no_page() -> None:
    assert not server_catalogue(CHINESE).keys() & server_catalogue(CHINESE, "admin").keys()
    assert "The path of the folder is too long." in ALL.keys() - server_catalogue(CHINESE).keys()


def test_a_long_text_that_nearly_fits_takes_no_time() -> None:
    for nearly in ("The task is " + "x: " * 20_000, "x: " * 1300):
        assert told_in(CHINESE, nearly).strip() == nearly.strip()


def test_every_verdict_of_the_policy_has_its_words() -> None:
    rules = [
        Rule(id="1", decision=verdict, scope=scope, label="mine", tool=f"{verdict}_{scope}")
        for verdict in ("allow", "ask", "deny")
        for scope in ("global", "workspace", "session", "task")
    ]
    modes: tuple[Mode, ...] = ("ask", "deny", "read_only")
    subjects = [
        Subject(tool=tool, capability=capability, paths=paths, commands=commands)
        for tool in ("t", *(rule.tool for rule in rules))
        for capability in ("file:read", "file:write", "", "odd")
        for paths in ((), ("memory/MEMORY.md",))
        for commands in ((), None)
    ]
    for mode in modes:
        for subject in subjects:
            decision = Policy(mode=mode, rules=rules).decide(subject)
            for text in (decision.rule, decision.reason):
                assert english_words(told_in(CHINESE, text)) <= {
                    *("file", "read", "write", "odd", "t", "mine", "read_only", "deny"),
                    *(word for rule in rules for word in re.findall(r"\w+", rule.tool)),
                }, text


def english_words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]+", text))


# ── what the API refuses ──────────────────────────────────────────────────────────────────────

REFUSALS = {"Invalid", "NotIdentified", "Forbidden", "Conflict", "TooLarge", "TooMany"}
FOR_PROGRAMS = {
    *("access/identity.py", "access/principal.py", "access/tokens.py", "api/paging.py"),
    *("api/tokens.py", "api/usage.py", "threads.py", "webhooks.py"),
}
"""No page can be refused by these: tokens, cursors, what another program sends."""
NOT_FROM_PAGES = {
    "decision must be approve or reject.",
    "scope must be {}.",
    "delivery must be queue or steer.",
    "mode must be one of {}.",
    "when_busy must be one of {}.",
    "{} and {} do not belong together.",
    "This cursor is not one that a list of this API gave.",
}
MADE_OF_OTHERS = {"{} {}", "{}: {}", "{}; {}", "A file changed at the last moment; {}"}


def refusals() -> Iterator[tuple[str, str]]:
    """Every sentence that stands where it is raised, with X for what differs."""
    for file in sorted((ROOT / "tasks").rglob("*.py")):
        name = file.relative_to(ROOT / "tasks").as_posix()
        if name in FOR_PROGRAMS:
            continue
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for sentence in _raised_in(function):
                    yield name, sentence


def _raised_in(function: ast.AST) -> Iterator[str]:
    said = {
        target.id: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function):
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        if not called or node.func.id not in REFUSALS or len(node.args) < 2:  # type: ignore[attr-defined]
            continue
        message = node.args[1]  # type: ignore[attr-defined]
        message = said.get(message.id, message) if isinstance(message, ast.Name) else message
        text = _text(message)
        if text:
            yield text


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            _text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    return ""


def test_the_search_finds_refusals() -> None:
    found = {text for _, text in refusals()}
    assert {"Choose less." in text for text in found} == {True, False}
    assert "There is a file with this name already." in found
    assert "{} of your tasks wait already." in found
    assert len(found) > 40


def test_every_refusal_that_a_page_shows_is_there_in_chinese() -> None:
    known = [_shape(text) for text in ALL]
    missing = [
        (file, sentence)
        for file, text in refusals()
        if text not in NOT_FROM_PAGES
        for sentence in _sentences(text)
        if _shape(sentence) not in known and sentence not in MADE_OF_OTHERS
    ]
    assert missing == [], missing


def _sentences(text: str) -> list[str]:
    """What stands for something else ends as a sentence does, or is none of its own."""
    return [each for each in re.split(r"(?<=[.?!]) |(?<=: \{\}) (?=[A-Z])", text) if each != "{}"]


def _shape(text: str) -> str:
    return re.sub(r"\{\w*\}", "{}", text)
