"""Cast: changes the type of fields or of the whole key or value.

Owns which types become which others. Must not know how Java converts numbers.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from spark_jobs.connect.base.data import BITS, DECIMAL, Field, Schema, Type, to_stored
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.java_text import as_float32, iso_text, to_string
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.java_numbers import cut, cut_decimal, parse_float, parse_whole
from spark_jobs.connect.transforms.java_numbers import wrapped as wrapped_whole
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    basics,
    checked_struct,
    field_value,
    parsable,
    require_map,
    require_struct,
)

_PURPOSE: Final = "cast types"
_SPEC: Final = "spec"
_TARGETS: Mapping[str, Type] = {
    each.name: each for each in Type if each not in (Type.BYTES, Type.ARRAY, Type.MAP, Type.STRUCT)
}
_WHOLE_VALUE: Final = None
"""Stands for the name of a field in a cast of the whole value."""


def _parse_spec(pairs: Sequence[str]) -> dict[str | None, Type]:
    if not pairs:
        raise ConfigError("Must specify at least one field to cast.")
    casts: dict[str | None, Type] = {}
    for pair in pairs:
        *names, type_name = (part.strip() for part in pair.split(":"))
        if len(names) > 1:
            raise ConfigError(f"Invalid cast: {pair}, expected field:type")
        if type_name.upper() not in _TARGETS:
            raise ConfigError(
                f"Invalid type found in casting spec: {type_name}, expected one of {', '.join(_TARGETS).lower()}"
            )
        casts[names[0] if names else _WHOLE_VALUE] = _TARGETS[type_name.upper()]
    if _WHOLE_VALUE in casts and len(pairs) > 1:
        raise ConfigError(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in"
            " their spec"
        )
    return casts


class Cast(SidedTransformation):
    definition = Definition(
        [
            Setting(
                _SPEC,
                Kind.LIST,
                REQUIRED,
                Importance.HIGH,
                "Casts as field:type, with commas between them; or one type for the whole value. The types are int8,"
                " int16, int32, int64, float32, float64, boolean and string. Bytes become only strings, in base64.",
                parsable(_parse_spec),
            ),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._casts = _parse_spec(settings[_SPEC])
        self._whole: Type | None = self._casts.get(_WHOLE_VALUE)
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._cast_schema)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if value is None:
            return record
        if self._whole is not None:
            updated = None if schema is None else self._schemas[schema]
            return self.side.write(record, updated, cast_value(schema, value, self._whole))
        if schema is None:
            values = require_map(value, _PURPOSE)
            casts = {name: cast_value(None, values.get(name), kind) for name, kind in self._casts.items() if name}
            return self.side.write(record, None, {**values, **casts})
        struct = require_struct(value, _PURPOSE)
        values = {}
        for field in struct.schema.fields:
            found = field_value(struct, field, replaces_null=self._replaces_null)
            kind = self._casts.get(field.name)
            values[field.name] = found if kind is None else cast_value(field.schema, found, kind)
        updated = self._schemas[schema]
        return self.side.write(record, updated, checked_struct(updated, values))

    def _cast_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast_value(schema, schema.default, self._whole)
            return replace(basics(schema, self._whole), optional=schema.optional, default=default)
        fields = (Field(each.name, self._cast_field(each)) for each in schema.fields)
        return replace(basics(schema, fields=fields), optional=schema.optional, default=None)

    def _cast_field(self, field: Field) -> Schema:
        kind = self._casts.get(field.name)
        if kind is None:
            return field.schema
        return Schema(kind, field.schema.optional, default=cast_value(field.schema, field.schema.default, kind))


def cast_value(schema: Schema | None, value: Any, kind: Type) -> Any:
    """Return a value as one of another type; null stays null. Raises DataError."""
    if value is None:
        return None
    if schema is None and isinstance(value, (dt.date, dt.time, Decimal)):
        raise DataError(f"Cast transformation was passed a value of type {type(value).__name__} without a schema")
    if schema is not None and schema.is_logical and schema.name != DECIMAL and kind is not Type.STRING:
        value = to_stored(schema, value)
    cast = _CASTS.get(type(value))
    if cast is None:
        raise DataError(f"Cast transformation does not support casting from {type(value).__name__}: {value!r:.100}")
    try:
        return cast(value, kind, schema)
    except ValueError as error:
        raise DataError(f"Value ({value!s:.100}) was out of range for requested data type: {error}") from error


def _of_bool(value: bool, kind: Type, _schema: Schema | None) -> Any:
    match kind:
        case Type.BOOLEAN:
            return value
        case Type.STRING:
            return to_string(value)
        case Type.FLOAT32 | Type.FLOAT64:
            return float(value)
    return int(value)


def _of_int(value: int, kind: Type, _schema: Schema | None) -> Any:
    match kind:
        case Type.BOOLEAN:
            return value != 0
        case Type.STRING:
            return str(value)
        case Type.FLOAT32:
            return as_float32(float(value))
        case Type.FLOAT64:
            return float(value)
    return wrapped_whole(value, BITS[kind])


def _of_float(value: float, kind: Type, schema: Schema | None) -> Any:
    match kind:
        case Type.BOOLEAN:
            return cut(value, 64) != 0
        case Type.STRING:
            return to_string(value, schema)
        case Type.FLOAT32:
            return as_float32(value)
        case Type.FLOAT64:
            return value
    return cut(value, BITS[kind])


def _of_decimal(value: Decimal, kind: Type, _schema: Schema | None) -> Any:
    match kind:
        case Type.BOOLEAN:
            return cut_decimal(value, 64) != 0
        case Type.STRING:
            return str(value)
        case Type.FLOAT32:
            return as_float32(float(value))
        case Type.FLOAT64:
            return float(value)
    return cut_decimal(value, BITS[kind])


def _of_text(value: str, kind: Type, _schema: Schema | None) -> Any:
    match kind:
        case Type.BOOLEAN:
            return value.lower() == "true"
        case Type.STRING:
            return value
        case Type.FLOAT32:
            return as_float32(parse_float(value))
        case Type.FLOAT64:
            return parse_float(value)
    return parse_whole(value, BITS[kind])


def _of_bytes(value: bytes, kind: Type, _schema: Schema | None) -> str:
    if kind is not Type.STRING:
        raise DataError(f"Unexpected type in Cast transformation: bytes become only strings, not {kind.name}")
    return b64encode(value).decode("ascii")


def _of_instant(value: dt.date | dt.time, _kind: Type, _schema: Schema | None) -> str:
    return iso_text(value)


_CASTS: Mapping[type, Callable[[Any, Type, Schema | None], Any]] = {
    bool: _of_bool,
    int: _of_int,
    float: _of_float,
    Decimal: _of_decimal,
    str: _of_text,
    bytes: _of_bytes,
    dt.date: _of_instant,
    dt.time: _of_instant,
    dt.datetime: _of_instant,
}


class CastOfKey(Cast):
    side = KEY


class CastOfValue(Cast):
    side = VALUE
