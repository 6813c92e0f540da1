"""Schemas as JSON, as the converter writes them beside each value.

    {"type":"struct","fields":[{"type":"int32","optional":false,"field":"id"}],"optional":false,"name":"order"}

Owns this form and the order of its keys. Must not know the payload's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spark_jobs.connect.base.data import Field, Schema, Type
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.json_decoding import compile_decoder
from spark_jobs.connect.converters.json_encoding import EncodingOptions, compile_encoder
from spark_jobs.connect.converters.json_text import array, plain, quote

_TYPES = {each.value: each for each in Type}


def schema_text(schema: Schema | None, options: EncodingOptions, field: str | None = None) -> str:
    """Return a schema as JSON; `field` is the name of a struct's field that has it. Raises DataError."""
    if schema is None:
        return "null"
    pieces = [f'"type":"{schema.type.value}"', *_parts(schema, options)]
    pieces.append(f'"optional":{"true" if schema.optional else "false"}')
    for key, value in (("name", schema.name), ("version", schema.version), ("doc", schema.doc)):
        if value is not None:
            pieces.append(f'"{key}":{plain(value)}')
    if schema.parameters:
        pieces.append(f'"parameters":{plain(dict(schema.parameters))}')
    if schema.default is not None:
        pieces.append(f'"default":{compile_encoder(schema, options)(schema.default)}')
    if field is not None:
        pieces.append(f'"field":{quote(field)}')
    return "{" + ",".join(pieces) + "}"


def _parts(schema: Schema, options: EncodingOptions) -> list[str]:
    match schema.type:
        case Type.ARRAY:
            return [f'"items":{schema_text(schema.value_schema, options)}']
        case Type.MAP:
            keys, values = (schema_text(each, options) for each in (schema.key_schema, schema.value_schema))
            return [f'"keys":{keys}', f'"values":{values}']
        case Type.STRUCT:
            return [f'"fields":{array(schema_text(each.schema, options, each.name) for each in schema.fields)}']
    return []


def read_schema(found: Any, *, replaces_null: bool) -> Schema | None:
    """Return the schema of decoded JSON. Raises DataError."""
    if found is None:
        return None
    name = found.get("type") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise DataError(f"Schema must contain 'type' field, but is {found!r:.100}")
    if name not in _TYPES:
        raise DataError(f"Unknown schema type: {name}")
    kind = _TYPES[name]
    schema = Schema(
        kind,
        optional=found.get("optional") is True,
        name=_typed(found, "name", str),
        version=_typed(found, "version", int),
        doc=_typed(found, "doc", str),
        parameters=_read_parameters(found.get("parameters")),
        **_READERS[kind](found, replaces_null) if kind in _READERS else {},
    )
    if "default" not in found:
        return schema
    return replace(schema, default=compile_decoder(schema, replaces_null=replaces_null)(found["default"]))


def _typed(found: Mapping[str, Any], key: str, kind: type) -> Any:
    """Return what a key has; None, as Kafka's converter, if that is of another type."""
    value = found.get(key)
    return value if type(value) is kind else None


def _read_parameters(found: Any) -> Mapping[str, str]:
    if not isinstance(found, dict):
        return {}
    for name, value in found.items():
        if not isinstance(value, str):
            raise DataError(f"Schema parameters must have string values, but {name} has {value!r:.100}")
    return found


def _read_array(found: Mapping[str, Any], replaces_null: bool) -> dict[str, Any]:
    if found.get("items") is None:
        raise DataError("Array schema did not specify the element type")
    return {"value_schema": read_schema(found["items"], replaces_null=replaces_null)}


def _read_map(found: Mapping[str, Any], replaces_null: bool) -> dict[str, Any]:
    for key, what in (("keys", "key"), ("values", "value")):
        if found.get(key) is None:
            raise DataError(f"Map schema did not specify the {what} type")
    return {
        "key_schema": read_schema(found["keys"], replaces_null=replaces_null),
        "value_schema": read_schema(found["values"], replaces_null=replaces_null),
    }


def _read_struct(found: Mapping[str, Any], replaces_null: bool) -> dict[str, Any]:
    if not isinstance(found.get("fields"), list):
        raise DataError('Struct schema\'s "fields" argument is not an array.')
    return {"fields": tuple(_read_field(each, replaces_null) for each in found["fields"])}


def _read_field(found: Any, replaces_null: bool) -> Field:
    name = found.get("field") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise DataError(f"Struct schema's field name not specified properly: {found!r:.100}")
    schema = read_schema(found, replaces_null=replaces_null)
    assert schema is not None
    return Field(name, schema)


_READERS: Mapping[Type, Callable[[Mapping[str, Any], bool], dict[str, Any]]] = {
    Type.ARRAY: _read_array,
    Type.MAP: _read_map,
    Type.STRUCT: _read_struct,
}
