"""Values as Java prints them: numbers, instants, and `toString` of collections.

Texts in topics are compared and parsed by others, so each digit counts: Java has `1.0E10` where Python has
`10000000000.0`. Digits are the fewest that identify a number, as in Java 19 and newer; older ones print a few numbers
with a digit too many. A `java.util.Date` is a date, a time or a datetime here; texts are in UTC.

Owns these texts. Must not know any format around them.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from spark_jobs.connect.base.data import EPOCH, MILLISECOND, Schema, Struct, Type, time_ms
from spark_jobs.connect.base.errors import DataError

MS_PER_DAY: Final = 86_400_000
_FLOAT: Final = struct.Struct(">f")
_TINY_DOUBLE: Final = 2.3e-308
_TINY_FLOAT: Final = 1.2e-38
"""Smaller numbers are denormal: the digits of a number say less than usual."""
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def double_text(number: float) -> str:
    """Return `Double.toString`."""
    if 0 < abs(number) < _TINY_DOUBLE and float(text := f"{number:.1e}") == number:
        return _java_digits(text)  # Java prints two digits even if one would do
    return _java_digits(repr(number))


def float_text(number: float) -> str:
    """Return `Float.toString` of the nearest number of 32 bits."""
    nearest = as_float32(number)
    fewest = 2 if abs(nearest) < _TINY_FLOAT else 6  # other numbers of up to 6 digits are all different
    for digits in range(fewest, 10):
        text = f"{nearest:.{digits}g}"
        if as_float32(float(text)) == nearest:
            break
    return _java_digits(text)


def as_float32(number: float) -> float:
    """Return the nearest number of 32 bits: an infinity for larger ones."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


_NON_FINITE: Mapping[str, str] = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def _java_digits(text: str) -> str:
    """Return a number with Python's digits in Java's notation: from 10^-3 to 10^7 without an exponent."""
    if text in _NON_FINITE:
        return _NON_FINITE[text]
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent_text = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return f"{sign}0.0"
    exponent = int(exponent_text or 0) + len(whole) - 1 - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if exponent < -3 or exponent >= 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 1, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :] or '0'}"


def instant_ms(value: dt.date | dt.time | dt.datetime) -> int:
    """Return the milliseconds since 1970 of a date (at midnight), a time (on the first day) or a datetime.

    Raises DataError for a datetime without a time zone.
    """
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise DataError(f"the datetime {value} has no time zone")
        return (value - EPOCH) // MILLISECOND
    if isinstance(value, dt.date):
        return (value - EPOCH.date()).days * MS_PER_DAY
    return time_ms(value)


def instant(ms: int) -> dt.datetime:
    """Return the datetime of milliseconds since 1970. Raises DataError for years that Python cannot represent."""
    try:
        return EPOCH + ms * MILLISECOND
    except OverflowError as error:
        raise DataError(f"the time {ms} ms since 1970 is not in the years 1 to 9999") from error


def iso_text(value: dt.date | dt.time | dt.datetime) -> str:
    """Return a time of the first day, a date at midnight, or a whole timestamp, whichever says all of an instant."""
    ms = instant_ms(value)
    when = instant(ms)
    time = f"{when:%H:%M:%S}.{ms % 1000:03d}Z"
    if ms < MS_PER_DAY:
        return time
    date = f"{when.year:04d}-{when:%m-%d}"
    return date if ms % MS_PER_DAY == 0 else f"{date}T{time}"


def to_string(value: Any, schema: Schema | None = None) -> str:
    """Return `toString` of a value; of bytes, for which Java prints an address, their text in UTF-8.

    Raises DataError for types that values of Connect do not have.
    """
    print_value = _PRINTERS.get(type(value))
    if print_value is None:
        raise DataError(f"a value of type {type(value).__name__} has no text: expected a value of Connect")
    return print_value(value, schema)


def _float(value: float, schema: Schema | None) -> str:
    return float_text(value) if schema is not None and schema.type is Type.FLOAT32 else double_text(value)


def _list(values: list[Any], schema: Schema | None) -> str:
    item_schema = schema.value_schema if schema is not None else None
    return f"[{', '.join(to_string(each, item_schema) for each in values)}]"


def _dict(values: Mapping[Any, Any], schema: Schema | None) -> str:
    keys, items = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    return "{" + ", ".join(f"{to_string(key, keys)}={to_string(item, items)}" for key, item in values.items()) + "}"


def _struct(value: Struct, _schema: Schema | None) -> str:
    fields = ((each, value.values.get(each.name)) for each in value.schema.fields)
    return "Struct{" + ",".join(f"{f.name}={to_string(v, f.schema)}" for f, v in fields if v is not None) + "}"


def _instant(value: Any, _schema: Schema | None) -> str:
    when = instant(instant_ms(value))
    return f"{_DAYS[when.weekday()]} {MONTHS[when.month - 1]} {when:%d %H:%M:%S} UTC {when.year:04d}"


_PRINTERS: Mapping[type, Callable[[Any, Schema | None], str]] = {
    type(None): lambda _value, _schema: "null",
    str: lambda value, _schema: value,
    bool: lambda value, _schema: "true" if value else "false",
    int: lambda value, _schema: str(value),
    float: _float,
    Decimal: lambda value, _schema: str(value),
    bytes: lambda value, _schema: value.decode(errors="replace"),
    list: _list,
    dict: _dict,
    Struct: _struct,
    dt.date: _instant,
    dt.time: _instant,
    dt.datetime: _instant,
}
