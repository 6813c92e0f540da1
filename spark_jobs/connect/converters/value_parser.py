"""Texts to values, and values to texts, as `org.apache.kafka.connect.data.Values` has them for headers.

    true -> BOOLEAN      12 -> INT8      1.5 -> FLOAT32      [1, 300] -> ARRAY of INT16
    2024-02-29 -> Date   "a:b" -> STRING {"a": 1} -> MAP     anything else -> STRING

A whole number has the smallest type that holds it. Texts of which a part is no value are strings as a whole.

Owns this syntax. Must not know headers. Invariant of the parser: `_next` is a token that `_position` is already behind.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from spark_jobs.connect.base.data import (
    BITS,
    BOOLEAN,
    STRING,
    Schema,
    Struct,
    Type,
    array_schema,
    date_schema,
    decimal_schema,
    map_schema,
    time_schema,
    timestamp_schema,
)
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.converters.java_dates import JavaDateFormat
from spark_jobs.connect.converters.java_text import as_float32, instant, iso_text, to_string


class SchemaAndValue(NamedTuple):
    """A value with its schema; both are None for null."""

    schema: Schema | None
    value: Any


_NULL: Final = SchemaAndValue(None, None)
_LITERALS: Mapping[str, SchemaAndValue] = {
    "null": _NULL,
    "true": SchemaAndValue(BOOLEAN, True),
    "false": SchemaAndValue(BOOLEAN, False),
}
_TOKEN: Final = re.compile(r'[:,{}\[\]"]|(?:\\.|[^\\:,{}\[\]"])+\\?|\\', re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NUMBER_ORDER: Final = (*BITS, Type.FLOAT32, Type.FLOAT64)
_EXPONENT_MAX: Final = 1000
"""Larger numbers stay texts: as decimals they would fill the memory."""
_TEMPORAL: Mapping[int, tuple[JavaDateFormat, Schema, Callable[[dt.datetime], Any]]] = {
    10: (JavaDateFormat("yyyy-MM-dd"), date_schema(), dt.datetime.date),
    13: (JavaDateFormat("HH:mm:ss.SSS'Z'"), time_schema(), dt.datetime.time),
    24: (JavaDateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"), timestamp_schema(), lambda when: when),
}
"""Format, schema and value by the length of a text."""


def parse(text: str) -> SchemaAndValue:
    """Return the value of a text, with a schema. Never raises: what is no other value is a string."""
    if not text:
        return SchemaAndValue(STRING, text)
    try:
        return _Parser(text).value(embedded=False)
    except RecursionError:
        return SchemaAndValue(STRING, text)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._next: str | None = None

    def value(self, *, embedded: bool) -> SchemaAndValue:
        """Parse one value. Raises DataError if an embedded one is invalid."""
        if not self._has_next():
            return _NULL
        if embedded and self._consume('"'):
            return self._quoted()
        for literal, meaning in _LITERALS.items():
            if self._is_single(literal, embedded=embedded):
                return meaning
        mark = self._mark()
        try:
            if self._consume("["):
                return self._array()
            if self._consume("{"):
                return self._map()
        except DataError:
            self._rewind(mark)
        token = self._take()
        if not token.strip():
            return SchemaAndValue(STRING, token)
        return self._scalar(token.strip(), embedded=embedded)

    def _scalar(self, token: str, *, embedded: bool) -> SchemaAndValue:
        if token[0].isdigit() and (found := self._temporal(token)) is not None:
            return found
        if (number := _number(token)) is not None:
            return number
        if embedded:
            raise DataError(f"{self._text!r:.100} has a value that is none: {token!r:.40}")
        return SchemaAndValue(STRING, self._text)

    def _temporal(self, token: str) -> SchemaAndValue | None:
        """Parse a date, a time or a timestamp; the colons split it into five tokens."""
        mark = self._mark()
        rest = [self._take() for _ in range(4) if self._has_next()]
        if len(rest) == 4 and (found := _temporal(token + "".join(rest))) is not None:
            return found
        self._rewind(mark)
        return _temporal(token)

    def _quoted(self) -> SchemaAndValue:
        pieces = []
        while self._has_next() and not self._consume('"'):
            pieces.append(self._take())
        text = "".join(pieces)
        return _temporal(text) or SchemaAndValue(STRING, text)

    def _array(self) -> SchemaAndValue:
        values: list[Any] = []
        items = _CommonSchema()
        while self._has_next():
            if self._consume("]"):
                schema = items.schema
                if schema is None:
                    return SchemaAndValue(Schema(Type.ARRAY), values)
                return SchemaAndValue(array_schema(schema), [_aligned(schema, each) for each in values])
            if self._consume(","):
                raise DataError(f"{self._text!r:.100} has an empty array element")
            found = self.value(embedded=True)
            items.merge(found)
            values.append(found.value)
            mark = self._mark()
            if self._consume("]"):
                self._rewind(mark)
            elif not self._consume(","):
                raise DataError(f"{self._text!r:.100} has array elements without a comma between them")
        raise DataError(f"{self._text!r:.100} has an array without ]")

    def _map(self) -> SchemaAndValue:
        entries: dict[Any, Any] = {}
        keys, values = _CommonSchema(), _CommonSchema()
        while self._has_next():
            if self._consume("}"):
                return _map_value(keys.schema, values.schema, entries)
            if self._consume(","):
                raise DataError(f"{self._text!r:.100} has a map entry without key and value")
            key = self.value(embedded=True)
            if key.value is None or isinstance(key.value, (list, dict)):
                raise DataError(f"{self._text!r:.100} has a map entry whose key is null or a collection")
            if not self._consume(":"):
                raise DataError(f"{self._text!r:.100} has a map entry without a colon at {self._position}")
            found = self.value(embedded=True)
            entries[key.value] = found.value
            self._consume(",")
            keys.merge(key)
            values.merge(found)
        raise DataError(f"{self._text!r:.100} has a map without }}")

    def _is_single(self, literal: str, *, embedded: bool) -> bool:
        mark = self._mark()
        if self._consume(literal) and (embedded or not self._has_next()):
            return True
        self._rewind(mark)
        return False

    def _has_next(self) -> bool:
        return self._next is not None or self._position < len(self._text)

    def _take(self) -> str:
        token = self._next if self._next is not None else self._scan()
        self._next = None
        return token

    def _scan(self) -> str:
        found = _TOKEN.match(self._text, self._position)
        assert found is not None  # every character begins a token
        self._position = found.end()
        return found[0]

    def _consume(self, expected: str) -> bool:
        """Take the next token if it is `expected`; blanks before it are skipped."""
        if self._next is None:
            if not self._has_next():
                return False
            self._next = self._scan()
        while not self._next.strip() and self._position < len(self._text):
            self._next = self._scan()
        if self._next.strip() != expected:
            return False
        self._next = None
        return True

    def _mark(self) -> int:
        return self._position - len(self._next or "")

    def _rewind(self, mark: int) -> None:
        self._position, self._next = mark, None


class _CommonSchema:
    """The schema of all values of a collection; None if they have none in common."""

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._is_compatible = True

    def merge(self, found: SchemaAndValue) -> None:
        if found.schema is None or not self._is_compatible:
            return
        self.schema = found.schema if self.schema is None else _merged(self.schema, found.schema)
        self._is_compatible = self.schema is not None


def _merged(one: Schema, other: Schema) -> Schema | None:
    if one.type is other.type:
        return other
    if one.type in _NUMBER_ORDER and other.type in _NUMBER_ORDER:
        return max(one, other, key=lambda each: _NUMBER_ORDER.index(each.type))
    return None


def _aligned(schema: Schema, value: Any) -> Any:
    """Return a number as one of the common type of its collection."""
    if value is None:
        raise DataError("null among values of a common type")
    if schema.type in (Type.FLOAT32, Type.FLOAT64) and isinstance(value, int):
        return float(value)
    return value


def _map_value(keys: Schema | None, values: Schema | None, entries: Mapping[Any, Any]) -> SchemaAndValue:
    if keys is None:
        return SchemaAndValue(Schema(Type.MAP), entries)
    if values is None:
        aligned = {_aligned(keys, key): value for key, value in entries.items()}
        return SchemaAndValue(Schema(Type.MAP, key_schema=keys), aligned)
    return SchemaAndValue(
        map_schema(keys, values),
        {_aligned(keys, key): _aligned(values, value) for key, value in entries.items()},
    )


def _temporal(text: str) -> SchemaAndValue | None:
    text = text.replace("\\:", ":")
    found = _TEMPORAL.get(len(text))
    if found is None:
        return None
    form, schema, value_of = found
    try:
        return SchemaAndValue(schema, value_of(instant(form.parse(text))))
    except (ValueError, DataError):
        return None


def _number(text: str) -> SchemaAndValue | None:
    if not _NUMBER.fullmatch(text):
        return None
    try:
        decimal = Decimal(text)
    except InvalidOperation:  # an exponent of more digits than a decimal has
        return None
    if abs(decimal.adjusted()) > _EXPONENT_MAX:
        return None
    if decimal == decimal.to_integral_value() and (whole := _whole(int(decimal))) is not None:
        return whole
    exponent = decimal.as_tuple().exponent
    assert isinstance(exponent, int)
    if exponent != 0:
        if not math.isinf(short := as_float32(float(decimal))):
            return SchemaAndValue(Schema(Type.FLOAT32), short)
        if not math.isinf(float(decimal)):
            return SchemaAndValue(Schema(Type.FLOAT64), float(decimal))
    return SchemaAndValue(decimal_schema(-exponent), decimal)


def _whole(number: int) -> SchemaAndValue | None:
    for kind, bits in BITS.items():
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return SchemaAndValue(Schema(kind), number)
    return None


def text_of(schema: Schema | None, value: Any, *, embedded: bool = False) -> str:
    """Return the text of a value that `parse` reads again. Raises DataError for types that have none."""
    write = _WRITERS.get(type(value))
    if write is None:
        raise DataError(f"a value of type {type(value).__name__} has no text: {value!r:.100}")
    return write(schema, value, embedded)


def _quoted(text: str, embedded: bool) -> str:
    if not embedded:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _java_text(schema: Schema | None, value: Any, _embedded: bool) -> str:
    return to_string(value, schema)


def _instant_text(_schema: Schema | None, value: dt.date | dt.time, _embedded: bool) -> str:
    return iso_text(value)


def _list_text(schema: Schema | None, values: list[Any], _embedded: bool) -> str:
    items = schema.value_schema if schema is not None else None
    return f"[{','.join(text_of(items, each, embedded=True) for each in values)}]"


def _dict_text(schema: Schema | None, values: Mapping[Any, Any], _embedded: bool) -> str:
    keys, items = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return _entries((keys, key, items, item) for key, item in values.items())


def _struct_text(_schema: Schema | None, value: Struct, _embedded: bool) -> str:
    pairs = ((field, value[field.name]) for field in value.schema.fields)
    return _entries((STRING, f.name, f.schema, f.schema.default if found is None else found) for f, found in pairs)


def _entries(entries: Any) -> str:
    texts = (
        f"{text_of(keys, key, embedded=True)}:{text_of(items, item, embedded=True)}"
        for keys, key, items, item in entries
    )
    return "{" + ",".join(texts) + "}"


_WRITERS: Mapping[type, Callable[[Schema | None, Any, bool], str]] = {
    **dict.fromkeys((type(None), bool, int, float, Decimal), _java_text),
    str: lambda _schema, value, embedded: _quoted(value, embedded),
    bytes: lambda _schema, value, embedded: _quoted(b64encode(value).decode("ascii"), embedded),
    list: _list_text,
    dict: _dict_text,
    Struct: _struct_text,
    **dict.fromkeys((dt.date, dt.time, dt.datetime), _instant_text),
}
