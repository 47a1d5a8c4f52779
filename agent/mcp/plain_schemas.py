"""A stranger's JSON Schema -> one that every provider takes and that costs nothing to check. Pure.

References are put in where they stand, what refers to itself becomes "anything". Keywords that ask
for time that a stranger chooses (patterns) or that providers refuse are left out: the server checks
its own arguments again. Texts in it are bounded and shown as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agent.text import clean, cut, visible

MAX_NODES = 400
"""Schemas within the schema, references put in."""
MAX_LEVELS = 12
MAX_CHOICES = 100
MAX_TEXT = 400
"""Characters of a description."""
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
_BOUNDS = frozenset(
    {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength",
     "minItems", "maxItems", "minProperties", "maxProperties"}
)  # fmt: skip
_SIZES = frozenset(name for name in _BOUNDS if name.endswith(("Length", "Items", "Properties")))


class Unusable(ValueError):
    """A tool with this schema is left out."""


def plain(schema: Any) -> dict[str, Any]:
    """The schema of an arguments object. Raises Unusable."""
    if not isinstance(schema, dict):
        raise Unusable("it has no schema of its arguments")
    kinds = schema.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise Unusable("its arguments are not an object")
    found = _flat(_Plain(schema).schema({**schema, "type": "object"}, (), 0))
    found.setdefault("properties", {})
    # What a server does not name it does not need, and nobody would look at it as a path.
    found.setdefault("additionalProperties", False)
    return found


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """Without alternatives at the top, which providers refuse together with every other tool: with
    all that they name, of which only what each of them needs is needed."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        parts = [_flat(part) for part in schema.pop(keyword, ())]
        if not parts:
            continue
        named: dict[str, list[Any]] = {}
        for part in parts:
            for name, each in part.get("properties", {}).items():
                named[name] = [*(one for one in named.get(name, ()) if one != each), each]
        needed = [set(part.get("required", ())) for part in parts]
        all_of = set.union(*needed) if keyword == "allOf" else set.intersection(*needed)
        own = schema.get("properties", {})
        schema["properties"] = {
            name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in named.items()
        } | own
        if all_of:
            schema["required"] = [*dict.fromkeys((*schema.get("required", ()), *sorted(all_of)))]
        if any(part.get("additionalProperties") for part in parts):
            schema.setdefault("additionalProperties", True)
    schema.pop("enum", None)
    schema.pop("const", None)
    return schema


class _Plain:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._nodes = 0

    def schema(self, node: Any, through: tuple[str, ...], level: int) -> dict[str, Any]:
        """One schema; `through` are the references that led to it."""
        self._nodes += 1
        if self._nodes > MAX_NODES or level > MAX_LEVELS:
            raise Unusable("the schema of its arguments is too large")
        if node is True:
            return {}
        if not isinstance(node, dict):
            raise Unusable("the schema of its arguments is not a proper one")
        if "$ref" in node:
            return self._referred(node, through, level)
        found: dict[str, Any] = {}
        for keyword, read in _READ.items():
            if node.get(keyword) is not None or (keyword in node and keyword in _NULLABLE):
                value = read(self, node[keyword], through, level + 1)
                if value is not None:
                    found[keyword] = value
        found |= {name: node[name] for name in _BOUNDS & node.keys() if _bound(name, node[name])}
        if found.get("type") == "array":
            found.setdefault("items", {})
        return found

    def _referred(
        self, node: Mapping[str, Any], through: tuple[str, ...], level: int
    ) -> dict[str, Any]:
        reference = node["$ref"]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unusable("the schema of its arguments refers to something outside it")
        if reference in through:
            return {}
        found = self.schema(self._at(reference), (*through, reference), level + 1)
        own = self.schema({k: v for k, v in node.items() if k != "$ref"}, through, level + 1)
        return found | own

    def _at(self, reference: str) -> Any:
        place: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if name:
                place = place.get(name) if isinstance(place, dict) else None
        if not isinstance(place, dict | bool):
            raise Unusable("the schema of its arguments refers to something that is not there")
        return place

    def _properties(self, value: Any, through: tuple[str, ...], level: int) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Unusable("the schema of its arguments is not a proper one")
        return {
            clean(name): self.schema(each, through, level)
            for name, each in value.items()
            if each is not False  # there must be none
        }

    def _alternatives(self, value: Any, through: tuple[str, ...], level: int) -> list[Any]:
        if not isinstance(value, list) or not value:
            raise Unusable("the schema of its arguments is not a proper one")
        return [self.schema(each, through, level) for each in value]

    def _items(self, value: Any, through: tuple[str, ...], level: int) -> dict[str, Any]:
        return {} if isinstance(value, list | bool) else self.schema(value, through, level)

    def _additional(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        return value if isinstance(value, bool) else self.schema(value, through, level)

    def _type(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        kinds = value if isinstance(value, list) else [value]
        if not kinds or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
            raise Unusable("the schema of its arguments names a type that there is not")
        return value if isinstance(value, str) else list(dict.fromkeys(kinds))

    def _required(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        if isinstance(value, bool):
            return None  # of drafts in which each property said so itself
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise Unusable("the schema of its arguments is not a proper one")
        return list(dict.fromkeys(map(clean, value)))

    def _choices(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        if not isinstance(value, list) or not 0 < len(value) <= MAX_CHOICES:
            raise Unusable("the schema of its arguments has a choice of too many or of nothing")
        return [self._constant(each, through, level) for each in value]

    def _constant(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        if isinstance(value, str):
            return clean(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        raise Unusable("the schema of its arguments has a constant that is not a plain value")

    def _default(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        return cut(clean(value), MAX_TEXT) if isinstance(value, str) else _number(value)

    def _description(self, value: Any, through: tuple[str, ...], level: int) -> Any:
        return shown(value, MAX_TEXT) if isinstance(value, str) else None


def shown(text: str, limit: int) -> str:
    """A stranger's text: nothing in it hides, and it has an end."""
    return cut(visible(clean(text[: 2 * limit])), limit)


def _number(value: Any) -> Any:
    return value if isinstance(value, bool | int | float) else None


def _bound(name: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return name not in _SIZES or (isinstance(value, int) and value >= 0)


_NULLABLE = frozenset({"const", "default"})
"""Keywords whose value may be null; any other is as good as not there, as Go writes it."""
_READ: dict[str, Callable[[_Plain, Any, tuple[str, ...], int], Any]] = {
    "type": _Plain._type,
    "description": _Plain._description,
    "properties": _Plain._properties,
    "required": _Plain._required,
    "additionalProperties": _Plain._additional,
    "items": _Plain._items,
    "enum": _Plain._choices,
    "const": _Plain._constant,
    "anyOf": _Plain._alternatives,
    "oneOf": _Plain._alternatives,
    "allOf": _Plain._alternatives,
    "default": _Plain._default,
}
"""What is kept, in this order."""
