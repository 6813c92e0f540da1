"""Values of Connect as fastavro has them, and back: for each schema a function, compiled once.

fastavro sees schemas without logical types (`bare`), so dates and decimals are converted here, exactly, and others,
such as timestamp-micros, stay the numbers that they are for Kafka's converter. Of named types in unions it states the
name.

Owns this correspondence. Must not know registries or bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_jobs.connect.base.data import BITS, DECIMAL, Schema, Struct, Type, from_stored, to_stored
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.avro_schema import FIXED_SIZE, has_text_keys, is_union, resolved
from spark_jobs.connect.converters.java_text import as_float32
from spark_jobs.connect.converters.json_encoding import has_same_fields

Convert = Callable[[Any], Any]
"""Returns the other form of a value. Raises DataError."""

_CLASSES: Mapping[Type, type] = {Type.BOOLEAN: bool, Type.STRING: str, Type.BYTES: bytes}


def bare(avro: Any) -> Any:
    """Return an Avro schema without logical types and properties that are not Avro's."""
    if isinstance(avro, list):
        return [bare(each) for each in avro]
    if not isinstance(avro, dict):
        return avro
    if avro.keys().isdisjoint(_STRUCTURE):
        return bare(avro["type"])
    found = {key: value for key, value in avro.items() if key in _KEPT}
    for key in ("type", "items", "values"):
        if key in found:
            found[key] = bare(found[key])
    if "fields" in found:
        found["fields"] = [bare(each) for each in found["fields"]]
    return found


_STRUCTURE: Final = frozenset({"name", "items", "values", "fields", "symbols", "size"})
_KEPT: Final = _STRUCTURE | {"type", "namespace", "default", "aliases"}


def compile_writer(schema: Schema | None) -> Convert:
    """Return the function from values of a schema to those of fastavro."""
    if schema is None:
        return anything
    write = _logical_writer(schema) if schema.is_logical else _WRITERS[schema.type](schema)

    def write_value(value: Any) -> Any:
        if value is None:
            value = schema.default
        if value is not None:
            return write(value)
        if not schema.optional:
            raise DataError("Found null value for non-optional schema")
        return None

    return write_value


def _logical_writer(schema: Schema) -> Convert:
    size = int(schema.parameters.get(FIXED_SIZE, "0"))
    if schema.name != DECIMAL or not size:
        return lambda value: to_stored(schema, value)

    def write(value: Any) -> bytes:
        unscaled = int.from_bytes(to_stored(schema, value), "big", signed=True)
        try:
            return unscaled.to_bytes(size, "big", signed=True)
        except OverflowError as error:
            raise DataError(f"the decimal {value} does not fit into {size} bytes") from error

    return write


def _whole_writer(schema: Schema) -> Convert:
    limit = 1 << (BITS[schema.type] - 1)

    def write(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise _misfit(value, schema)
        return value

    return write


def _float_writer(schema: Schema) -> Convert:
    def write(value: Any) -> float:
        if type(value) not in (float, int):
            raise _misfit(value, schema)
        return as_float32(value) if schema.type is Type.FLOAT32 else float(value)

    return write


def _plain_writer(schema: Schema) -> Convert:
    kind = _CLASSES[schema.type]

    def write(value: Any) -> Any:
        if type(value) is not kind:
            raise _misfit(value, schema)
        return value

    return write


def _array_writer(schema: Schema) -> Convert:
    write_item = compile_writer(schema.value_schema)

    def write(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _misfit(value, schema)
        return list(map(write_item, value))

    return write


def _map_writer(schema: Schema) -> Convert:
    write_key, write_item = compile_writer(schema.key_schema), compile_writer(schema.value_schema)
    is_plain = has_text_keys(schema)

    def write(value: Any) -> Any:
        if type(value) is not dict:
            raise _misfit(value, schema)
        if is_plain:
            return {write_key(key): write_item(item) for key, item in value.items()}
        return [{"key": write_key(key), "value": write_item(item)} for key, item in value.items()]

    return write


def _struct_writer(schema: Schema) -> Convert:
    fields = [(each.name, compile_writer(each.schema)) for each in schema.fields]
    is_of_union = is_union(schema)

    def write(value: Any) -> Any:
        if type(value) is not Struct:
            raise _misfit(value, schema)
        if value.schema is not schema and not has_same_fields(value.schema, schema):
            raise DataError("Mismatching struct schema")
        get = value.values.get
        return {name: write_field(get(name)) for name, write_field in fields}

    def write_member(value: Any) -> Any:
        if type(value) is not Struct:
            raise _misfit(value, schema)
        for (name, write_field), field in zip(fields, schema.fields, strict=True):
            if (member := value.values.get(name)) is not None:
                written = write_field(member)
                return (field.schema.name, written) if field.schema.type is Type.STRUCT else written
        return None

    return write_member if is_of_union else write


_WRITERS: Mapping[Type, Callable[[Schema], Convert]] = {
    **dict.fromkeys(BITS, _whole_writer),
    **dict.fromkeys(_CLASSES, _plain_writer),
    Type.FLOAT32: _float_writer,
    Type.FLOAT64: _float_writer,
    Type.ARRAY: _array_writer,
    Type.MAP: _map_writer,
    Type.STRUCT: _struct_writer,
}


def _misfit(value: Any, schema: Schema) -> DataError:
    return DataError(f"Invalid type for {schema.type.name}: {value!r:.100} of type {type(value).__name__}")


def anything(value: Any) -> dict[str, Any]:
    """Return a value without a schema as a record of `ANYTHING`, in which one field is set, or none for null."""
    match value:
        case None:
            return {}
        case bool():
            return {"boolean": value}
        case int():
            is_short = -(1 << 31) <= value < 1 << 31
            return {"int" if is_short else "long": value}
        case float():
            return {"double": value}
        case str():
            return {"string": value}
        case bytes():
            return {"bytes": value}
        case list():
            return {"array": [anything(each) for each in value]}
        case dict():
            return {"map": [{"key": anything(key), "value": anything(item)} for key, item in value.items()]}
    raise DataError(f"a value of type {type(value).__name__} has no Avro form without a schema")


def of_anything(found: Any) -> Any:
    """Return the value of a record of `ANYTHING`."""
    set_fields = ((name, value) for name, value in _unnamed(found).items() if value is not None)
    for name, value in set_fields:
        if name == "array":
            return [of_anything(each) for each in value]
        if name == "map":
            entries = map(_unnamed, value)
            return {of_anything(each["key"]): of_anything(each["value"]) for each in entries}
        return value
    return None


def _unnamed(found: Any) -> Any:
    """Return a value without the name of its type, which fastavro states in unions."""
    return found[1] if isinstance(found, tuple) else found


def compile_reader(avro: Any, schema: Schema, named: Mapping[str, Any]) -> Convert:
    """Return the function from values of fastavro to those of the schema that `avro` stands for."""
    if isinstance(avro, list):
        return _union_reader(avro, schema, named)
    if schema.is_logical:
        return lambda found: from_stored(schema, found)
    match schema.type:
        case Type.ARRAY:
            return _array_reader(resolved(avro, named)["items"], schema, named)
        case Type.MAP:
            return _map_reader(resolved(avro, named), schema, named)
        case Type.STRUCT:
            return _struct_reader(resolved(avro, named)["fields"], schema, named)
    return lambda found: found


def _union_reader(members: list[Any], schema: Schema, named: Mapping[str, Any]) -> Convert:
    others = [each for each in members if each != "null"]
    if not is_union(schema):
        read = compile_reader(others[0], schema, named)
        return lambda found: None if found is None else read(_unnamed(found))
    readers = [
        (each.name, each.schema, compile_reader(avro, each.schema, named))
        for avro, each in zip(others, schema.fields, strict=True)
    ]

    def read_member(found: Any) -> Any:
        if found is None:
            return None
        for name, member, read in readers:
            if _simple(found[0]) == name if isinstance(found, tuple) else _is_of(found, member):
                value = Struct(schema)
                value.values[name] = read(_unnamed(found))
                return value
        raise DataError(f"Did not find matching union field for data {found!r:.100}")

    return read_member


def _simple(full_name: str) -> str:
    return full_name.rpartition(".")[2]


_MEMBER_CLASSES: Mapping[Type, type] = {
    **_CLASSES,
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.ARRAY: list,
    Type.STRUCT: dict,
}


def _is_of(found: Any, schema: Schema) -> bool:
    """Whether a value without the name of a type may be one of a schema."""
    if schema.type is Type.MAP:
        return type(found) is (dict if has_text_keys(schema) else list)
    if schema.type in BITS:
        limit = 1 << (BITS[schema.type] - 1)
        return type(found) is int and -limit <= found < limit
    return type(found) is _MEMBER_CLASSES[schema.type]


def _array_reader(items: Any, schema: Schema, named: Mapping[str, Any]) -> Convert:
    assert schema.value_schema is not None
    read_item = compile_reader(items, schema.value_schema, named)
    return lambda found: list(map(read_item, found))


def _map_reader(avro: Mapping[str, Any], schema: Schema, named: Mapping[str, Any]) -> Convert:
    assert schema.value_schema is not None
    assert schema.key_schema is not None
    if "values" in avro:
        read_item = compile_reader(avro["values"], schema.value_schema, named)
        return lambda found: {key: read_item(item) for key, item in found.items()}
    types = {each["name"]: each["type"] for each in resolved(avro["items"], named)["fields"]}
    read_key = compile_reader(types["key"], schema.key_schema, named)
    read_value = compile_reader(types["value"], schema.value_schema, named)

    def read(found: Any) -> dict[Any, Any]:
        try:
            return {read_key(each["key"]): read_value(each["value"]) for each in found}
        except TypeError as error:  # structs, lists and maps have no hash
            raise DataError(f"a key of a map has no hash: {error}") from error

    return read


def _struct_reader(fields: list[Any], schema: Schema, named: Mapping[str, Any]) -> Convert:
    types = {each["name"]: each["type"] for each in fields}
    readers = [(each.name, compile_reader(types[each.name], each.schema, named)) for each in schema.fields]

    def read(found: Any) -> Struct:
        value = Struct(schema)
        value.values = {name: read_field(found[name]) for name, read_field in readers}
        return value

    return read
