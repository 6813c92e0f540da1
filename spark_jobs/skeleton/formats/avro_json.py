"""The values of Avro that JSON does not have, as JSON: the same texts in both directions.

| Avro | JSON |
|---|---|
| bytes, fixed | base64 |
| decimal | a text such as "12.50"; a number is accepted as well |
| date, time-millis, time-micros | ISO 8601, such as "2013-01-31" and "23:59:00.001" |
| timestamp-millis, timestamp-micros | ISO 8601; a text without a zone is in UTC |
| local-timestamp-millis, local-timestamp-micros | ISO 8601 without a zone |

Dates and times are also accepted as the numbers that Avro stores. A union takes the first of its types that a value
fits, and of several records the one with most of the value's fields. So a text that several types of a union accept may
get another of these types than it had, with the same JSON.

Owns this correspondence. Must not know the topics and registries that have the values.
"""

import base64
import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar
from uuid import UUID

import fastavro

T = TypeVar("T", time, datetime)
Schema = Mapping[str, Any]
Convert = Callable[[Any], Any]
"""Converts a value of JSON for fastavro's writer, or raises one of MISFIT."""

MISFIT = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)

_MILLISECOND_US = 1000
_FLOAT_MAX = 3.4028234663852886e38
_NAMED = ("record", "error", "enum", "fixed")


def to_json(value: Any) -> Any:
    """Return what JSON has for a value that fastavro has read, as `default` of `json.dumps`."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def from_json(text: str, schema: str) -> Any:
    """Return the value of a JSON text for fastavro's writer. Raises one of MISFIT if it does not fit `schema`.

    The writer alone would truncate fractions, and accept numbers that are too large for an int. Fields that the schema
    does not have are dropped.
    """
    return _compiled(schema)(json.loads(text, parse_float=Decimal))


@lru_cache(maxsize=1000)
def _compiled(schema: str) -> Convert:
    return _converter(fastavro.parse_schema(json.loads(schema)), {})


def _converter(schema: Any, named: dict[str, Convert]) -> Convert:
    """Return the function that converts to a schema's type; `named` gets those of the types with names."""
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or named[schema]
    if logical := _LOGICAL.get((schema["type"], schema.get("logicalType"))):
        convert = logical(schema)
    else:
        match schema["type"]:
            case "record" | "error":
                return _record(schema, named)
            case "array":
                convert = _array(_converter(schema["items"], named))
            case "map":
                convert = _map(_converter(schema["values"], named))
            case "fixed":
                convert = _fixed(schema)
            case "enum":
                convert = _enum(schema)
            case inner:
                convert = _converter(inner, named)
    if schema["type"] in _NAMED:
        named[schema["name"]] = convert
    return convert


def _record(schema: Schema, named: dict[str, Convert]) -> Convert:
    fields: dict[str, tuple[Convert, bool]] = {}

    def convert(value: Any) -> dict[str, Any]:
        found = {}
        for name, (convert_field, has_default) in fields.items():
            if name in _expect(value, dict) or not has_default:
                found[name] = convert_field(value.get(name))
        return found

    named[schema["name"]] = convert  # before its fields, which may refer to it
    for each in schema["fields"]:
        fields[each["name"]] = (_converter(each["type"], named), "default" in each)
    return convert


def _union(schemas: list[Any], named: dict[str, Convert]) -> Convert:
    branches = [(_branch_name(each), _converter(each, named)) for each in schemas]

    def convert(value: Any) -> tuple[str, Any]:
        """Return the value with the name of its branch: the writer alone might choose another one."""
        found: list[tuple[str, Any]] = []
        for name, convert_branch in branches:
            try:
                found.append((name, convert_branch(value)))
            except MISFIT:
                continue
        if not found:
            raise ValueError("the value fits no type of the union")
        return max(found, key=lambda each: len(each[1]) if isinstance(value, dict) else 0)

    return convert


def _branch_name(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    return str(schema["name"] if schema["type"] in _NAMED else schema["type"])


def _array(convert: Convert) -> Convert:
    return lambda value: [convert(each) for each in _expect(value, list)]


def _map(convert: Convert) -> Convert:
    return lambda value: {key: convert(inner) for key, inner in _expect(value, dict).items()}


def _fixed(schema: Schema) -> Convert:
    def convert(value: Any) -> bytes:
        found = _bytes(value)
        if len(found) != schema["size"]:
            raise ValueError(f"expected {schema['size']} bytes")
        return found

    return convert


def _enum(schema: Schema) -> Convert:
    def convert(value: Any) -> Any:
        if value not in schema["symbols"]:
            raise ValueError("the value is no symbol of the enum")
        return value

    return convert


def _expect(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _integer(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not -limit <= _expect(value, int) < limit:
            raise ValueError(f"expected a whole number of {bits} bits")
        return value

    return convert


def _of(kind: type) -> Convert:
    return lambda value: _expect(value, kind)


_INT, _LONG = _integer(32), _integer(64)


def _number(largest: float) -> Convert:
    def convert(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise TypeError("expected a number")
        found = float(value)
        if not -largest <= found <= largest:  # JSON has no NaN either
            raise ValueError(f"expected a number of at most {largest}")
        return found

    return convert


def _bytes(value: Any) -> bytes:
    return base64.b64decode(_expect(value, str).encode("ascii"), validate=True)


def _uuid(_schema: Schema) -> Convert:
    return lambda value: str(UUID(value))


def _decimal(schema: Schema) -> Convert:
    digits_before_point = schema["precision"] - schema.get("scale", 0)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
            raise TypeError("expected a decimal")
        found = Decimal(value)
        # Without this, a large exponent would become a number of as many digits.
        if not found.is_finite() or (found and found.adjusted() >= digits_before_point):
            raise ValueError("the decimal is too large")
        return found

    return convert


def _date(_schema: Schema) -> Convert:
    return lambda value: date.fromisoformat(value) if isinstance(value, str) else _INT(value)


def _time_of_day(schema: Schema) -> Convert:
    def parse(text: str) -> time:
        return _exact(_without_zone(time.fromisoformat(text)), schema)

    return lambda value: parse(value) if isinstance(value, str) else _PRIMITIVES[schema["type"]](value)


def _timestamp(schema: Schema) -> Convert:
    def parse(text: str) -> datetime:
        found = datetime.fromisoformat(text)
        return _exact(found if found.tzinfo is not None else found.replace(tzinfo=UTC), schema)

    return lambda value: parse(value) if isinstance(value, str) else _LONG(value)


def _local_timestamp(schema: Schema) -> Convert:
    def parse(text: str) -> datetime:
        return _exact(_without_zone(datetime.fromisoformat(text)), schema)

    return lambda value: parse(value) if isinstance(value, str) else _LONG(value)


def _without_zone(value: T) -> T:
    if value.tzinfo is not None:
        raise ValueError("a local time has no zone")
    return value


def _exact(value: T, schema: Schema) -> T:
    """Return the time if the schema has its fraction: fastavro would truncate microseconds."""
    if schema["logicalType"].endswith("-millis") and value.microsecond % _MILLISECOND_US:
        raise ValueError("the time has microseconds")
    return value


_PRIMITIVES: Mapping[str, Convert] = {
    "null": _of(type(None)),
    "boolean": _of(bool),
    "int": _INT,
    "long": _LONG,
    "float": _number(_FLOAT_MAX),
    "double": _number(sys.float_info.max),
    "bytes": _bytes,
    "string": _of(str),
}
_LOGICAL: Mapping[tuple[Any, Any], Callable[[Schema], Convert]] = {
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _uuid,
    ("int", "date"): _date,
    ("int", "time-millis"): _time_of_day,
    ("long", "time-micros"): _time_of_day,
    ("long", "timestamp-millis"): _timestamp,
    ("long", "timestamp-micros"): _timestamp,
    ("long", "local-timestamp-millis"): _local_timestamp,
    ("long", "local-timestamp-micros"): _local_timestamp,
}
