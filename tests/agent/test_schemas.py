"""The quick yes of a schema: never where the validator says no, and cheap."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from agent.schemas import quick
from agent.toolbox import SCHEMAS, Tool, Toolbox
from agent.tools import builtin_tools
from agent.tools.files import READ_FILE
from tests.support.counting import python_calls

VALUES: list[Any] = [
    *(None, True, False, 0, 1, 3, -1, 9, 1.0, 2.5, float("nan"), float("inf"), 10**30),
    *("", "a", "abcdef", "1", [], ["a"], [1], [[]], {}, {"a": 1}, {"a": "x"}, {"b": True}),
    *({"a": 1, "b": "x"}, {"a": 1, "c": None}, {"a": {"b": 2}}, {"a": None}, {"c": 1}),
]
PARTS: list[dict[str, Any]] = [
    *({"type": kind} for kind in ("object", "array", "string", "integer", "number", "boolean")),
    *({"type": "null"}, {"type": ["string", "integer"]}, {"title": "t"}, {"default": 3}),
    *({"properties": {"a": {"type": "integer", "minimum": 1}}}, {"properties": {"a": False}}),
    *({"properties": {"a": True, "b": {"type": "string", "maxLength": 2}}}, {"required": ["a"]}),
    *({"properties": {"a": {}, "b": {}}}, {"patternProperties": {"^c": {}}}, {"enum": [1, "a"]}),
    *({"additionalProperties": False}, {"additionalProperties": {"type": "string"}}),
    *({"minimum": 1}, {"maximum": 3}, {"minLength": 1}, {"maxLength": 3}, {"const": 1}),
    *({"items": {"type": "string"}}, {"not": {}}, {"pattern": "^a"}, {"multipleOf": 2}),
]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_what_surely_fits_is_valid(part: dict[str, Any]) -> None:
    for other in PARTS:
        schema = {**other, **part}
        validator = Draft202012Validator(schema)
        surely_fits = quick(schema)
        for value in VALUES:
            assert not surely_fits(value) or validator.is_valid(value), (schema, value)


@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("bound", [0.5, 1.0, 2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**70), 2**2000])
@pytest.mark.parametrize("keyword", ["minimum", "maximum"])
def test_a_bound_of_any_kind_breaks_no_call(kind: str, bound: Any, keyword: str) -> None:
    """As a server writes for a number of 64 bits without a sign."""
    schema = {"type": "object", "properties": {"a": {"type": kind, keyword: bound}}}
    validator, surely_fits = Draft202012Validator(schema), quick(schema)
    for value in (0, 1, 2**53 - 1, 2**53, 2**53 + 1, 2**63, 2**64, -(2**80), 0.5, 1e300):
        arguments = {"a": value}
        assert not surely_fits(arguments) or validator.is_valid(arguments), (schema, value)


def offered(keyword: str) -> Tool:
    """A tool as a server lists it: each listing is new objects."""
    schema = {"type": "object", "properties": {keyword: {"type": "string"}}, "required": [keyword]}
    return replace(READ_FILE, name="offered", parameters=schema)


def test_a_schema_that_was_seen_before_is_not_compiled_again() -> None:
    box = Toolbox(())
    box.and_more([offered("a")])
    with python_calls() as names:
        again = box.and_more([offered("a")])
    assert len(names) < 60, names
    assert again.problem("offered", {"a": "x"}) is None
    assert "required" in str(again.problem("offered", {}))


def test_the_same_name_with_another_schema_is_another_tool() -> None:
    box = Toolbox(())
    first, second = box.and_more([offered("a")]), box.and_more([offered("b")])
    for one, fits in ((first, "a"), (second, "b")):
        assert [word for word in "ab" if one.problem("offered", {word: "x"}) is None] == [fits]


def test_only_so_many_schemas_are_kept() -> None:
    box = Toolbox(())
    for number in range(SCHEMAS + 50):
        box.and_more([offered(f"kept{number}")])
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Draft202012Validator)]
    assert len([one for one in kept if "kept" in str(one.schema)]) <= SCHEMAS


def test_plain_arguments_are_known_to_fit_in_few_calls() -> None:
    """The validator alone takes more than a hundred."""
    box = Toolbox(builtin_tools())
    arguments = {"path": "a.txt", "start_line": 1, "end_line": 9}
    assert box.problem("read_file", {"path": "a.txt"}) is None  # msgspec looks at a type once
    with python_calls() as names:
        assert box.problem("read_file", arguments) is None
    assert len(names) < 5, names
    assert not quick(READ_FILE.parameters)({"path": "a.txt", "start_line": 0})
