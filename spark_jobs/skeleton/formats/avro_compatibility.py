"""Whether data written with one Avro schema can be read with another: the rules of schema resolution.

It works on the schemas alone, without data. Names of nested types are resolved within each schema.
Source: the chapter "Schema Resolution" of the Avro specification 1.12.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Any  # parsed JSON: a name, a union as a list, or an object
_PROMOTIONS: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
_NAMED = frozenset({"record", "enum", "fixed", "error"})


def problems(reader: Schema, writer: Schema) -> list[str]:
    """Return why `reader` cannot read data of `writer`, one line each; nothing if it can."""
    return list(_Resolution(reader, writer).problems(reader, writer, "the value"))


class _Resolution:
    """Compares two schemas; knows their named types, and the pairs that are being compared (types may be recursive)."""

    def __init__(self, reader: Schema, writer: Schema) -> None:
        self._reader_types: dict[str, Schema] = dict(_named_types(reader))
        self._writer_types: dict[str, Schema] = dict(_named_types(writer))
        self._open: set[tuple[str, str]] = set()

    def problems(self, reader: Schema, writer: Schema, place: str) -> Iterator[str]:
        reader, writer = _resolved(reader, self._reader_types), _resolved(writer, self._writer_types)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.problems(reader, branch, place)
        elif isinstance(reader, list):
            if not any(self._can_read(branch, writer, place) for branch in reader):
                yield f"{place}: the union has no branch for {_kind(writer)}"
        elif _kind(reader) != _kind(writer):
            if _kind(reader) not in _PROMOTIONS.get(_kind(writer), ()):
                yield f"{place}: {_kind(writer)} cannot be read as {_kind(reader)}"
        else:
            yield from self._same_kind(reader, writer, place)

    def _can_read(self, reader: Schema, writer: Schema, place: str) -> bool:
        return next(self.problems(reader, writer, place), None) is None

    def _same_kind(self, reader: Schema, writer: Schema, place: str) -> Iterator[str]:
        match _kind(reader):
            case "record" | "error":
                yield from self._records(reader, writer)
            case "array":
                yield from self.problems(reader["items"], writer["items"], f"an item of {place}")
            case "map":
                yield from self.problems(reader["values"], writer["values"], f"an entry of {place}")
            case "enum":
                lost = set(writer["symbols"]) - set(reader["symbols"])
                if lost and "default" not in reader:
                    yield f"{place}: the symbol {min(lost)} is missing, and there is no default"
            case "fixed":
                if reader["size"] != writer["size"]:
                    yield f"{place}: {writer['size']} bytes cannot be read as {reader['size']}"

    def _records(self, reader: Schema, writer: Schema) -> Iterator[str]:
        pair = (str(reader.get("name")), str(writer.get("name")))
        if pair in self._open:
            return
        self._open.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            if source is not None:
                yield from self.problems(field["type"], source["type"], f"field {field['name']}")
            elif "default" not in field:
                yield f"field {field['name']} is new and has no default"
        self._open.discard(pair)


def _resolved(schema: Schema, named: Mapping[str, Schema]) -> Schema:
    """Return what a name stands for, without objects that only wrap another schema."""
    if isinstance(schema, str):
        return named.get(schema, schema)
    if isinstance(schema, Mapping) and not isinstance(schema["type"], str):
        return _resolved(schema["type"], named)
    return schema


def _kind(schema: Schema) -> str:
    return str(schema["type"] if isinstance(schema, Mapping) else schema)


def _named_types(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each named type of a schema by its name, with and without its namespace."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _named_types(branch)
    elif isinstance(schema, Mapping):
        if isinstance(schema["type"], str) and schema["type"] in _NAMED:
            yield schema["name"], schema
            if "namespace" in schema:
                yield f"{schema['namespace']}.{schema['name']}", schema
        for inner in (schema.get("items"), schema.get("values"), schema["type"]):
            if isinstance(inner, Mapping | list):
                yield from _named_types(inner)
        for field in schema.get("fields", ()):
            yield from _named_types(field["type"])
