"""Decides whether values of an Avro schema can be opened without limits of their own.

Owns the rule. Pure. Must not know who registered the schema, or where values come from.

The library that opens values knows no limits: a recursive schema overflows the stack, and an array of a billion nulls
needs ten bytes. So a schema is used only if what it opens is proportional to the size of the value: no type
contains itself, and what is repeated takes at least one byte for each `OBJECTS_PER_BYTE_MAX` objects.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple

from base.dataclass import dataclass

DEPTH_MAX: Final = 32
OBJECTS_MAX: Final = 2_000
"""Objects of one value without its repeated parts."""
OBJECTS_PER_BYTE_MAX: Final = 16

_SIZES: Final = {
    "null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1,
}  # fmt: skip
"""The fewest bytes of a value by primitive type."""


class _Cost(NamedTuple):
    """The fewest bytes that a value takes, and the objects that it opens to without its repeated parts."""

    size_min: int
    objects: int


@dataclass(slots=True)
class _Named:
    """Named types by the last part of their names: equal ones of two namespaces count as the worse of both."""

    known: dict[str, _Cost] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)

    def add(self, name: str, cost: _Cost) -> None:
        other = self.known.get(name, cost)
        self.known[name] = _Cost(min(cost.size_min, other.size_min), max(cost.objects, other.objects))


def require_bounded(schema: object) -> None:
    """Raise ValueError if values of the schema could open to much more than their size, or it is no schema."""
    _cost(schema, _Named(), 0)


def _cost(schema: object, named: _Named, depth: int) -> _Cost:
    if depth > DEPTH_MAX:
        raise ValueError("types are nested too deeply")
    if isinstance(schema, str):
        cost = _reference(schema, named)
    elif isinstance(schema, list):
        branches = [_cost(each, named, depth + 1) for each in schema] or [_Cost(0, 0)]
        cost = _Cost(1 + min(each.size_min for each in branches), 1 + max(each.objects for each in branches))
    elif isinstance(schema, dict):
        cost = _complex(schema, named, depth)
    else:
        raise ValueError(f"no type: {type(schema).__name__}")
    if cost.objects > OBJECTS_MAX:
        raise ValueError(f"more than {OBJECTS_MAX} objects")
    return cost


def _reference(name: str, named: _Named) -> _Cost:
    if name in _SIZES:
        return _Cost(_SIZES[name], 1)
    last = _last_part(name)
    if last in named.unfinished or last not in named.known:
        raise ValueError(f"type {name[:100]!r} contains itself or is unknown")
    return named.known[last]


def _complex(schema: dict[str, Any], named: _Named, depth: int) -> _Cost:
    kind = schema.get("type")
    if kind in ("record", "error"):
        return _record(schema, named, depth)
    if kind == "array":
        return _repeated(_cost(schema.get("items"), named, depth + 1), 0)
    if kind == "map":
        return _repeated(_cost(schema.get("values"), named, depth + 1), 1)
    if kind in ("enum", "fixed"):
        size = 1 if kind == "enum" else schema.get("size")
        if not isinstance(size, int) or size < 0:
            raise ValueError(f"size {size!r} of a fixed type")
        cost = _Cost(size, 1)
        named.add(_last_part(schema.get("name")), cost)
        return cost
    return _cost(kind, named, depth + 1)


def _record(schema: dict[str, Any], named: _Named, depth: int) -> _Cost:
    name = _last_part(schema.get("name"))
    if name in named.unfinished:
        raise ValueError(f"type {name[:100]!r} contains itself")
    named.unfinished.add(name)
    size_min, objects = 0, 1
    for each in schema.get("fields") or ():
        cost = _cost(each.get("type") if isinstance(each, dict) else None, named, depth + 1)
        size_min += cost.size_min
        objects += cost.objects
        if objects > OBJECTS_MAX:
            break  # rejected by the caller
    named.unfinished.discard(name)
    named.add(name, _Cost(size_min, objects))
    return _Cost(size_min, objects)


def _repeated(element: _Cost, key_size_min: int) -> _Cost:
    if element.objects > OBJECTS_PER_BYTE_MAX * (element.size_min + key_size_min):
        raise ValueError("what is repeated takes too few bytes for its objects")
    return _Cost(1, 1)


def _last_part(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError("a named type has no name")
    return name.rpartition(".")[2]
