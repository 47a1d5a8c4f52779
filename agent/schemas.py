"""A quick yes for values that fit a JSON Schema of the usual plain kind. Pure.

The validator takes sixty calls of functions to find nothing wrong with a path and two numbers, and
every call of a tool is looked at twice. What is not certainly right is the validator's to judge,
and to put into words: an unknown keyword, an odd type or a wrong value are all the same here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}


def surely_fits(value: Any, schema: Any) -> bool:
    """True: the value is valid under the schema (2020-12). False: not known."""
    if not isinstance(schema, dict):
        return False
    for keyword, wanted in schema.items():
        if keyword not in _SILENT:
            check = _CHECKS.get(keyword)
            if check is None or not check(value, wanted, schema):
                return False
    return True


def _type(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    kinds = _TYPES.get(wanted) if isinstance(wanted, str) else None
    if kinds is None or not isinstance(value, kinds):
        return False
    return kinds is bool or not isinstance(value, bool)  # Python's True is an int, JSON's is not


def _properties(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    if not isinstance(value, dict):
        return False
    for name, item in value.items():
        if name in wanted and not surely_fits(item, wanted[name]):
            return False
    return True


def _required(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, dict) and value.keys() >= set(wanted)


def _nothing_else(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    return wanted is False and isinstance(value, dict) and value.keys() <= known.keys()


def _minimum(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, int | float) and value >= wanted


def _maximum(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, int | float) and value <= wanted


def _min_length(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, str) and len(value) >= wanted


def _max_length(value: Any, wanted: Any, schema: dict[str, Any]) -> bool:
    return isinstance(value, str) and len(value) <= wanted


_SILENT = frozenset({"title", "description", "default", "examples"})
"""Keywords that demand nothing."""
_CHECKS: dict[str, Callable[[Any, Any, dict[str, Any]], bool]] = {
    "type": _type,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _nothing_else,
    "minimum": _minimum,
    "maximum": _maximum,
    "minLength": _min_length,
    "maxLength": _max_length,
}
