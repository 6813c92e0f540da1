"""Values with schemas, as `org.apache.kafka.connect.data` defines them.

A value is a plain Python object, and its schema says what it means; a value without a schema (None) may be any object
that JSON can represent.

| type | Python |
|---|---|
| INT8 to INT64 | int |
| FLOAT32, FLOAT64 | float |
| BOOLEAN, STRING, BYTES | bool, str, bytes |
| ARRAY, MAP | list, dict |
| STRUCT | Struct |
| logical types by name | DECIMAL: Decimal, DATE: date, TIME: time, TIMESTAMP: datetime with a time zone |

Owns types, schemas and the check of a value. Must not know how values are stored.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import MAX_PREC, Context, Decimal
from enum import Enum
from typing import Any, Final

from spark_jobs.connect.base.errors import DataError


class Type(Enum):
    """The type of a schema. The values are the names in JSON schemas."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
"""The parameter of a DECIMAL schema."""

BITS: Final[Mapping[Type, int]] = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
"""The sizes of the types of whole numbers, in their order."""
_PYTHON_TYPES: Mapping[Type, type] = {
    Type.FLOAT32: float,
    Type.FLOAT64: float,
    Type.BOOLEAN: bool,
    Type.STRING: str,
    Type.BYTES: bytes,
    Type.ARRAY: list,
    Type.MAP: dict,
}
_LOGICAL_TYPES: Mapping[str, tuple[Type, type]] = {
    DECIMAL: (Type.BYTES, Decimal),
    DATE: (Type.INT32, dt.date),
    TIME: (Type.INT32, dt.time),
    TIMESTAMP: (Type.INT64, dt.datetime),
}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a STRUCT schema."""

    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class Schema:
    """The meaning of a value. `parameters`, `fields`, `key_schema` and `value_schema` are None or empty where the type
    has none; an ARRAY has a `value_schema`, a MAP both."""

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    __hash__ = None  # type: ignore[assignment]  # defaults and parameters have none: caches use the identity

    def as_optional(self) -> Schema:
        return self if self.optional else replace(self, optional=True)

    def field(self, name: str) -> Field | None:
        """Return the field of a name, None if a STRUCT has none."""
        return next((each for each in self.fields if each.name == name), None)

    @property
    def is_logical(self) -> bool:
        """Whether the Python value is of another type than that of the stored one."""
        found = _LOGICAL_TYPES.get(self.name or "")
        return found is not None and found[0] is self.type


STRING: Final = Schema(Type.STRING)
OPTIONAL_STRING: Final = Schema(Type.STRING, optional=True)
BYTES: Final = Schema(Type.BYTES)
OPTIONAL_BYTES: Final = Schema(Type.BYTES, optional=True)
INT32: Final = Schema(Type.INT32)
INT64: Final = Schema(Type.INT64)
FLOAT64: Final = Schema(Type.FLOAT64)
BOOLEAN: Final = Schema(Type.BOOLEAN)


def struct_schema(fields: Mapping[str, Schema], *, name: str | None = None, version: int | None = None) -> Schema:
    """Return a STRUCT schema with these fields, in their order."""
    each = tuple(Field(field_name, schema) for field_name, schema in fields.items())
    return Schema(Type.STRUCT, name=name, version=version, fields=each)


def array_schema(items: Schema) -> Schema:
    return Schema(Type.ARRAY, value_schema=items)


def map_schema(keys: Schema, values: Schema) -> Schema:
    return Schema(Type.MAP, key_schema=keys, value_schema=values)


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    return Schema(Type.BYTES, optional, DECIMAL, 1, parameters={SCALE: str(scale)})


def timestamp_schema(*, optional: bool = False) -> Schema:
    return Schema(Type.INT64, optional, TIMESTAMP, 1)


def date_schema(*, optional: bool = False) -> Schema:
    return Schema(Type.INT32, optional, DATE, 1)


def time_schema(*, optional: bool = False) -> Schema:
    return Schema(Type.INT32, optional, TIME, 1)


class Struct:
    """The values of a STRUCT schema's fields. A field without a value has its default, or None."""

    __slots__ = ("schema", "values")

    def __init__(self, schema: Schema, values: Mapping[str, Any] | None = None) -> None:
        """Raises DataError if the schema lacks a field; `validate` checks the values."""
        self.schema = schema
        self.values: dict[str, Any] = {}
        for name, value in (values or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        """Raises DataError for a field that the schema lacks."""
        if name in self.values:
            return self.values[name]
        return self._field(name).schema.default

    def __setitem__(self, name: str, value: Any) -> None:
        self._field(name)
        self.values[name] = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Struct) and self.schema == other.schema and dict(self.items()) == dict(other.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """As Java's `Struct.toString`, with the values as Python has them: for messages."""
        return "Struct{" + ",".join(f"{name}={value}" for name, value in self.items() if value is not None) + "}"

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield name and value of each field, in the order of the schema."""
        for each in self.schema.fields:
            yield each.name, self.values.get(each.name, each.schema.default)

    def _field(self, name: str) -> Field:
        found = self.schema.field(name)
        if found is None:
            known = ", ".join(each.name for each in self.schema.fields)
            raise DataError(f"{name} is not a field of the schema {self.schema.name or ''}; it has {known}")
        return found


def validate(schema: Schema | None, value: Any, name: str = "the value") -> None:
    """Raise DataError, which names the value, if a value does not fit a schema."""
    if schema is None:
        return
    if value is None:
        if not schema.optional and schema.default is None:
            raise DataError(f"{name} is null, but its schema is not optional")
        return
    if schema.is_logical:
        _expect(isinstance(value, _LOGICAL_TYPES[schema.name or ""][1]), schema, value, name)
    elif schema.type in BITS:
        limit = 1 << (BITS[schema.type] - 1)
        _expect(type(value) is int and -limit <= value < limit, schema, value, name)
    elif schema.type is Type.STRUCT:
        _expect(isinstance(value, Struct), schema, value, name)
        for each in schema.fields:
            validate(each.schema, value[each.name], f"field {each.name}")
    else:
        _expect(isinstance(value, _PYTHON_TYPES[schema.type]), schema, value, name)
        if schema.type is Type.ARRAY:
            for item in value:
                validate(schema.value_schema, item, f"an item of {name}")
        elif schema.type is Type.MAP:
            for key, item in value.items():
                validate(schema.key_schema, key, f"a key of {name}")
                validate(schema.value_schema, item, f"{name}[{key!r}]")


def _expect(fits: bool, schema: Schema, value: Any, name: str) -> None:
    if not fits:
        kind = schema.name or schema.type.value
        raise DataError(f"{name} is {value!r:.100} of type {type(value).__name__}: expected {kind}")


EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = EPOCH.date()
MILLISECOND: Final = dt.timedelta(milliseconds=1)
_EXACT: Final = Context(prec=MAX_PREC)  # the default context rounds to 28 digits


def _decimal_bytes(schema: Schema, value: Decimal) -> bytes:
    scale = int(schema.parameters.get(SCALE, "0"))
    scaled = value.scaleb(scale, _EXACT)
    unscaled = int(scaled)
    if scaled != unscaled:
        raise DataError(f"the decimal {value} has more than {scale} places")
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _bytes_decimal(schema: Schema, stored: bytes) -> Decimal:
    scale = int(schema.parameters.get(SCALE, "0"))
    return Decimal(int.from_bytes(stored, "big", signed=True)).scaleb(-scale, _EXACT)


def time_ms(value: dt.time) -> int:
    """Return the milliseconds since midnight."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


def _ms_time(_schema: Schema, stored: int) -> dt.time:
    return (EPOCH + stored * MILLISECOND).time()


_TO_STORED: Mapping[str, Callable[[Schema, Any], Any]] = {
    DECIMAL: _decimal_bytes,
    DATE: lambda _schema, value: (value - _EPOCH_DAY).days,
    TIME: lambda _schema, value: time_ms(value),
    TIMESTAMP: lambda _schema, value: (value - EPOCH) // MILLISECOND,
}
_FROM_STORED: Mapping[str, Callable[[Schema, Any], Any]] = {
    DECIMAL: _bytes_decimal,
    DATE: lambda _schema, stored: _EPOCH_DAY + dt.timedelta(days=stored),
    TIME: _ms_time,
    TIMESTAMP: lambda _schema, stored: EPOCH + stored * MILLISECOND,
}


def to_stored(schema: Schema, value: Any) -> Any:
    """Return the bytes or the number that a value of a logical type is stored as. Raises DataError."""
    try:
        return _TO_STORED[schema.name or ""](schema, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise DataError(f"{value!r:.100} is not a value of {schema.name}: {error}") from error


def from_stored(schema: Schema, stored: Any) -> Any:
    """Return the value of a logical type that bytes or a number are. Raises DataError."""
    try:
        return _FROM_STORED[schema.name or ""](schema, stored)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise DataError(f"{stored!r:.100} is not a stored value of {schema.name}: {error}") from error
