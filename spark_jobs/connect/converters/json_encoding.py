"""Connect values to JSON: for each schema a function, compiled once, from a value to text.

Owns the form of each type. Must not know the envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spark_jobs.connect.base.data import BITS, DECIMAL, Schema, Struct, Type, to_stored
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.java_text import double_text, float_text
from spark_jobs.connect.converters.json_text import array, base64, number, plain, quote

Encode = Callable[[Any], str]
"""Returns the JSON of a value. Raises DataError."""


@dataclass(frozen=True, slots=True)
class EncodingOptions:
    """Settings of the converter: `decimal.format=NUMERIC`, and `replace.null.with.default`."""

    numeric_decimals: bool
    replaces_null: bool


def compile_encoder(schema: Schema | None, options: EncodingOptions) -> Encode:
    """Return the encoder of a schema; of None, that for values without one."""
    if schema is None:
        return plain
    encode = _compile_logical(schema, options) if schema.is_logical else _COMPILERS[schema.type](schema, options)
    null = _null(schema, encode, options)

    def encode_value(value: Any) -> str:
        if value is not None:
            return encode(value)
        if null is None:
            raise DataError("Conversion error: null value for field that is required and has no default value")
        return null

    return encode_value


def _null(schema: Schema, encode: Encode, options: EncodingOptions) -> str | None:
    """Return the JSON of null; None if null is an error."""
    if schema.default is not None and options.replaces_null:
        return encode(schema.default)
    return "null" if schema.optional else None


def _compile_logical(schema: Schema, options: EncodingOptions) -> Encode:
    if schema.name != DECIMAL:
        return lambda value: str(to_stored(schema, value))
    if options.numeric_decimals:
        return lambda value: str(_checked(value, Decimal, schema))
    return lambda value: base64(to_stored(schema, value))


def _compile_whole(schema: Schema, _options: EncodingOptions) -> Encode:
    limit = 1 << (BITS[schema.type] - 1)

    def encode(value: Any) -> str:
        if type(value) is not int or not -limit <= value < limit:
            raise _misfit(value, schema)
        return str(value)

    return encode


def _compile_float(schema: Schema, _options: EncodingOptions) -> Encode:
    text_of = float_text if schema.type is Type.FLOAT32 else double_text

    def encode(value: Any) -> str:
        if type(value) is not float:
            value = float(_checked(value, int, schema))
        return number(text_of(value))

    return encode


def _compile_boolean(schema: Schema, _options: EncodingOptions) -> Encode:
    return lambda value: "true" if _checked(value, bool, schema) else "false"


def _compile_string(schema: Schema, _options: EncodingOptions) -> Encode:
    def encode(value: Any) -> str:
        if type(value) is str:
            return quote(value)
        raise _misfit(value, schema)

    return encode


def _compile_bytes(schema: Schema, _options: EncodingOptions) -> Encode:
    return lambda value: base64(_checked(value, bytes, schema))


def _compile_array(schema: Schema, options: EncodingOptions) -> Encode:
    encode_item = compile_encoder(schema.value_schema, options)
    return lambda value: array(map(encode_item, _checked(value, list, schema)))


def _compile_map(schema: Schema, options: EncodingOptions) -> Encode:
    encode_key = compile_encoder(schema.key_schema, options)
    encode_item = compile_encoder(schema.value_schema, options)

    def encode_object(value: Any) -> str:
        pairs = _checked(value, dict, schema).items()
        return "{" + ",".join([f"{encode_key(key)}:{encode_item(item)}" for key, item in pairs]) + "}"

    def encode_pairs(value: Any) -> str:
        pairs = _checked(value, dict, schema).items()
        return array(f"[{encode_key(key)},{encode_item(item)}]" for key, item in pairs)

    has_strings = schema.key_schema is not None and schema.key_schema.type is Type.STRING
    return encode_object if has_strings else encode_pairs


def _compile_struct(schema: Schema, options: EncodingOptions) -> Encode:
    fields = [(each.name, f"{quote(each.name)}:", compile_encoder(each.schema, options)) for each in schema.fields]

    def encode(value: Any) -> str:
        found = _checked(value, Struct, schema)
        if found.schema is not schema and not has_same_fields(found.schema, schema):
            raise DataError(f"Mismatching schema: the value is {found!r:.100}, its schema is not that of the record")
        get = found.values.get
        return "{" + ",".join([prefix + encode_field(get(name)) for name, prefix, encode_field in fields]) + "}"

    return encode


_COMPILERS: Mapping[Type, Callable[[Schema, EncodingOptions], Encode]] = {
    Type.INT8: _compile_whole,
    Type.INT16: _compile_whole,
    Type.INT32: _compile_whole,
    Type.INT64: _compile_whole,
    Type.FLOAT32: _compile_float,
    Type.FLOAT64: _compile_float,
    Type.BOOLEAN: _compile_boolean,
    Type.STRING: _compile_string,
    Type.BYTES: _compile_bytes,
    Type.ARRAY: _compile_array,
    Type.MAP: _compile_map,
    Type.STRUCT: _compile_struct,
}


def has_same_fields(one: Schema, other: Schema) -> bool:
    """Whether structs of one schema may stand for those of another one, which may have another default."""
    return one.name == other.name and one.fields == other.fields


def _checked(value: Any, kind: type, schema: Schema) -> Any:
    if type(value) is not kind:
        raise _misfit(value, schema)
    return value


def _misfit(value: Any, schema: Schema) -> DataError:
    expected = schema.name if schema.is_logical else schema.type.name
    return DataError(f"Invalid type for {expected}: {value!r:.100} of type {type(value).__name__}")
