"""JSON to Connect values: for each schema a function, compiled once, from what Python's `json` returns to a value.

Kafka's converter reads a text in the place of a number as 0, and cuts numbers that are too large; here both are
errors. `"NaN"` and `"Infinity"` are read as what Kafka's converter writes so.

Owns the form of each type. Must not know the envelope.
"""

from __future__ import annotations

import binascii
import math
from base64 import b64decode
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from spark_jobs.connect.base.data import BITS, DECIMAL, TIME, Schema, Struct, Type, from_stored
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.java_text import MS_PER_DAY, as_float32

Decode = Callable[[Any], Any]
"""Returns the value of decoded JSON, whose fractions are Decimals. Raises DataError."""

_NODES: Mapping[type, str] = {
    dict: "OBJECT",
    list: "ARRAY",
    str: "STRING",
    bool: "BOOLEAN",
    int: "NUMBER",
    float: "NUMBER",
    Decimal: "NUMBER",
    type(None): "NULL",
}
INT64_LIMIT: Final = 1 << (BITS[Type.INT64] - 1)
_NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})


def compile_decoder(schema: Schema | None, *, replaces_null: bool) -> Decode:
    """Return the decoder of a schema; of None, that for values without one."""
    if schema is None:
        return without_schema
    decode = _compile_logical(schema) if schema.is_logical else _COMPILERS[schema.type](schema, replaces_null)
    default = schema.default if replaces_null else None
    is_nullable = schema.optional or default is not None

    def decode_value(found: Any) -> Any:
        if found is not None:
            return decode(found)
        if not is_nullable:
            raise DataError(f"Invalid null value for required {schema.type.name} field")
        return default

    return decode_value


def without_schema(found: Any) -> Any:
    """Return a value with floats in the place of Decimals. Raises DataError for numbers that are too large."""
    match found:
        case Decimal():
            return _double(found)
        case int() if not -INT64_LIMIT <= found < INT64_LIMIT:
            raise DataError(f"the number {found!s:.40} is too large for INT64")
        case list():
            return [without_schema(each) for each in found]
        case dict():
            return {key: without_schema(item) for key, item in found.items()}
    return found


def _compile_logical(schema: Schema) -> Decode:
    if schema.name == DECIMAL:
        return lambda found: _decimal(schema, found)
    bits = BITS[schema.type]
    name = (schema.name or "").rpartition(".")[2]

    def decode(found: Any) -> Any:
        if type(found) is not int:
            node = _NODES[type(found)]
            raise DataError(f"Invalid type for {name}, underlying representation should be integer but was {node}")
        stored = _whole(found, bits, schema)
        if schema.name == TIME and not 0 <= stored < MS_PER_DAY:
            raise DataError(f"{stored} is not a time of a day in milliseconds: expected 0 to {MS_PER_DAY - 1}")
        return from_stored(schema, stored)

    return decode


def _decimal(schema: Schema, found: Any) -> Decimal:
    if isinstance(found, (int, Decimal)) and not isinstance(found, bool):
        return Decimal(found)
    if isinstance(found, str):
        stored: Decimal = from_stored(schema, _bytes(found))
        return stored
    raise DataError(
        f"Invalid type for Decimal, underlying representation should be numeric or bytes but was {_NODES[type(found)]}"
    )


def _whole(found: Any, bits: int, schema: Schema) -> int:
    limit = 1 << (bits - 1)
    if type(found) is Decimal and found == found.to_integral_value():
        found = int(found)
    if type(found) is not int or not -limit <= found < limit:
        raise _misfit(found, schema)
    return found


def _double(found: Decimal) -> float:
    number = float(found)
    if math.isinf(number):
        raise DataError(f"the number {found} is too large for FLOAT64")
    return number


def _bytes(found: str) -> bytes:
    try:
        return b64decode(found, validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"Invalid bytes field: {found!r:.100} is not base64: {error}") from error


def _compile_whole(schema: Schema, _replaces_null: bool) -> Decode:
    bits = BITS[schema.type]
    limit = 1 << (bits - 1)

    def decode(found: Any) -> int:
        if type(found) is int and -limit <= found < limit:
            return found
        return _whole(found, bits, schema)

    return decode


def _compile_float(schema: Schema, _replaces_null: bool) -> Decode:
    is_short = schema.type is Type.FLOAT32

    def decode(found: Any) -> float:
        if type(found) is str and found in _NON_FINITE:
            return float(found)
        if type(found) is not int and type(found) is not Decimal:
            raise _misfit(found, schema)
        number = _double(Decimal(found))
        if not is_short:
            return number
        short = as_float32(number)
        if math.isinf(short):
            raise _misfit(found, schema)
        return short

    return decode


def _compile_checked(kind: type) -> Callable[[Schema, bool], Decode]:
    def compile_type(schema: Schema, _replaces_null: bool) -> Decode:
        def decode(found: Any) -> Any:
            if type(found) is kind:
                return found
            raise _misfit(found, schema)

        return decode

    return compile_type


def _compile_bytes(schema: Schema, _replaces_null: bool) -> Decode:
    def decode(found: Any) -> bytes:
        if type(found) is str:
            return _bytes(found)
        raise _misfit(found, schema)

    return decode


def _compile_array(schema: Schema, replaces_null: bool) -> Decode:
    decode_item = compile_decoder(schema.value_schema, replaces_null=replaces_null)

    def decode(found: Any) -> list[Any]:
        if type(found) is list:
            return list(map(decode_item, found))
        raise _misfit(found, schema)

    return decode


def _compile_map(schema: Schema, replaces_null: bool) -> Decode:
    keys = schema.key_schema
    assert keys is not None
    decode_item = compile_decoder(schema.value_schema, replaces_null=replaces_null)
    decode_key = compile_decoder(keys, replaces_null=replaces_null)

    def decode_object(found: Any) -> dict[Any, Any]:
        if type(found) is dict:
            return {key: decode_item(item) for key, item in found.items()}
        raise DataError(f"Maps with string fields should be encoded as JSON objects, but found {_NODES[type(found)]}")

    def decode_pairs(found: Any) -> dict[Any, Any]:
        if type(found) is not list:
            node = _NODES[type(found)]
            raise DataError(f"Maps with non-string fields should be encoded as JSON array of tuples, but found {node}")
        try:
            return {decode_key(key): decode_item(item) for key, item in map(_pair, found)}
        except TypeError as error:  # structs, lists and maps have no hash
            raise DataError(f"a key of type {keys.type.name} cannot be the key of a map") from error

    return decode_object if keys.type is Type.STRING else decode_pairs


def _pair(found: Any) -> list[Any]:
    if type(found) is not list:
        raise DataError(f"Found invalid map entry instead of array tuple: {_NODES[type(found)]}")
    if len(found) != 2:
        raise DataError(f"Found invalid map entry, expected length 2 but found :{len(found)}")
    return found


def _compile_struct(schema: Schema, replaces_null: bool) -> Decode:
    fields = [(each.name, compile_decoder(each.schema, replaces_null=replaces_null)) for each in schema.fields]

    def decode(found: Any) -> Struct:
        if type(found) is not dict:
            raise DataError(f"Structs should be encoded as JSON objects, but found {_NODES[type(found)]}")
        value = Struct(schema)
        value.values = {name: decode_field(found.get(name)) for name, decode_field in fields}
        return value

    return decode


_COMPILERS: Mapping[Type, Callable[[Schema, bool], Decode]] = {
    Type.INT8: _compile_whole,
    Type.INT16: _compile_whole,
    Type.INT32: _compile_whole,
    Type.INT64: _compile_whole,
    Type.FLOAT32: _compile_float,
    Type.FLOAT64: _compile_float,
    Type.BOOLEAN: _compile_checked(bool),
    Type.STRING: _compile_checked(str),
    Type.BYTES: _compile_bytes,
    Type.ARRAY: _compile_array,
    Type.MAP: _compile_map,
    Type.STRUCT: _compile_struct,
}


def _misfit(found: Any, schema: Schema) -> DataError:
    return DataError(f"Invalid value for {schema.type.name}: {found!r:.100} is {_NODES[type(found)]}")
