"""Which texts the templates and scripts say: what a catalogue must have."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from config.env import ROOT

LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"' + r"|'((?:[^'\\\n]|\\.)*)'" + r"|`((?:[^`\\]|\\.)*)`")
CALL = re.compile(r"(?<![\w.])(?<!function )(t|rich|n)\(")
"""`t(text)`, `rich(text)`, `n(count, one, many)`."""
SAYING = {"say", "later", "t", "count"}
"""In Python."""


ADMIN = ROOT / "templates" / "admin"


def in_templates(folder: Path = ROOT / "templates") -> set[str]:
    """Without the admin's, unless that is the folder."""
    found: set[str] = set()
    for file in folder.rglob("*.html"):
        if folder == ADMIN or ADMIN not in file.parents:
            found |= set(re.findall(r'\{% t "((?:[^"\\]|\\.)*)"', file.read_text("utf-8")))
    return found


def in_scripts(folder: Path = ROOT / "static/app") -> set[str]:
    found: set[str] = set()
    for file in folder.rglob("*.js"):
        found |= set(said(file.read_text("utf-8")))
    return found


def in_python(folder: Path = ROOT / "tasks/pages", files: str = "*.py") -> set[str]:
    found: set[str] = set()
    for file in folder.rglob(files):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(call, ast.Call) and _name(call.func) in SAYING:
                found |= {each for argument in call.args for each in _texts(argument)}
    return found


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(argument: ast.expr) -> Iterator[str]:
    """A literal, or either of two."""
    match argument:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))


def said(script: str) -> Iterator[str]:
    for call in CALL.finditer(script):
        arguments = list(_arguments(script, call.end()))
        for argument in arguments[1:3] if call[1] == "n" else arguments[:1]:
            for literal in LITERAL.finditer(argument):
                yield next(part for part in literal.groups() if part is not None)


def _arguments(script: str, at: int) -> Iterator[str]:
    """The arguments of a call as source; `at` is behind its opening bracket."""
    depth, begin = 0, at
    while at < len(script):
        literal = LITERAL.match(script, at)
        if literal is not None:
            at = literal.end()
            continue
        sign = script[at]
        if depth == 0 and sign in ",)":
            yield script[begin:at]
            begin = at + 1
            if sign == ")":
                return
        depth += (sign in "([{") - (sign in ")]}")
        at += 1
