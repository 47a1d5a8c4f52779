"""A quick yes for values that fit a JSON Schema of the usual plain kind. Pure.

The validator takes sixty calls of functions to find nothing wrong with a path and two numbers, and
every call of a tool is looked at twice. msgspec sees the same in one, for schemas that say no more
than its types can. What is not certainly right is the validator's to judge, and to put into words:
an unknown keyword, an odd type or a wrong value are all the same here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

_SCALARS: dict[str, tuple[type, dict[str, str]]] = {
    "string": (str, {"minLength": "min_length", "maxLength": "max_length"}),
    "integer": (int, {"minimum": "ge", "maximum": "le"}),
    "number": (float, {"minimum": "ge", "maximum": "le"}),
    "boolean": (bool, {}),
}
"""Of a type of JSON: ours, and the keywords that bound it with what msgspec calls them."""
_SILENT = frozenset({"type", "title", "description", "default", "examples"})
"""Keywords that demand nothing more."""
_EXACT = 2**53
"""Up to here integers and floats are the same numbers, so that a bound divides both alike."""


class _NotPlain(Exception):
    """The schema demands something else."""


def quick(schema: Any) -> Callable[[Any], bool]:
    """What says True of values that are valid under the schema (2020-12), and False of all that it
    does not know."""
    try:
        kind = _kind(schema)
    except (_NotPlain, TypeError, ValueError):
        return lambda value: False

    def surely_fits(value: Any) -> bool:
        try:
            msgspec.convert(value, kind)
        except (msgspec.ValidationError, OverflowError):
            return False
        return True

    return surely_fits


def _kind(schema: Any) -> Any:
    """The type of msgspec that takes no value which the schema refuses."""
    name = schema.get("type") if isinstance(schema, dict) else None
    if name == "object":
        return _object(schema)
    if name == "array":
        _only(schema, {"items"})
        return list[_kind(schema["items"])] if "items" in schema else list[Any]  # type: ignore[misc]
    if not isinstance(name, str) or name not in _SCALARS:
        raise _NotPlain
    kind, bounds = _SCALARS[name]
    _only(schema, bounds.keys())
    said = {bounds[keyword]: value for keyword, value in schema.items() if keyword in bounds}
    if not all(_is_bound(value, kind) for value in said.values()):
        raise _NotPlain
    return Annotated[kind, msgspec.Meta(**said)] if said else kind


def _is_bound(value: Any, kind: type) -> bool:
    """Of others msgspec complains when the first value comes, or it rounds."""
    kinds = (int, float) if kind is float else (int,)
    return type(value) in kinds and -_EXACT < value < _EXACT


def _object(schema: dict[str, Any]) -> type[msgspec.Struct]:
    _only(schema, {"properties", "required", "additionalProperties"})
    properties, required = schema.get("properties", {}), schema.get("required", [])
    closed = schema.get("additionalProperties", True)
    if not isinstance(closed, bool) or not properties.keys() >= set(required):
        raise _NotPlain
    fields: list[Any] = []
    for number, (name, part) in enumerate(properties.items()):
        default = [] if name in required else [None]
        fields.append((f"field{number}", _kind(part), *default))
    names = {f"field{number}": name for number, name in enumerate(properties)}
    return msgspec.defstruct(
        "Arguments", fields, rename=names, kw_only=True, forbid_unknown_fields=not closed
    )


def _only(schema: dict[str, Any], keywords: Any) -> None:
    if not schema.keys() <= _SILENT | set(keywords):
        raise _NotPlain
