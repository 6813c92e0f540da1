"""MaskField: replaces values of fields by an empty value of their type, or by a given one.

Owns the masks. Must not know why fields are secret.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from spark_jobs.connect.base.data import BITS, Schema, Type
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, not_empty
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.java_text import as_float32, instant
from spark_jobs.connect.transforms.java_numbers import wrapped
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    checked_struct,
    field_values,
    not_empty_list,
    require_map,
    require_struct,
)

_PURPOSE: Final = "mask fields"
_REPLACEMENT: Final = "replacement"
_EXPONENT_MAX: Final = 1000
"""Larger numbers would fill the memory as integers."""
_EMPTY: Mapping[type, Callable[[], Any]] = {
    bool: bool,
    int: int,
    float: float,
    Decimal: Decimal,
    str: str,
    list: list,
    dict: dict,
    dt.date: lambda: instant(0).date(),
    dt.time: dt.time,
    dt.datetime: lambda: instant(0),
}


class MaskField(SidedTransformation):
    definition = Definition(
        [
            Setting("fields", Kind.LIST, REQUIRED, Importance.HIGH, "Names of the fields to mask.", not_empty_list),
            Setting(
                _REPLACEMENT,
                Kind.STRING,
                None,
                Importance.LOW,
                "What replaces numbers and texts; without it they become 0 and an empty text.",
                not_empty,
            ),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._names: list[str] = list(dict.fromkeys(settings["fields"]))
        self._replacement: str | None = settings[_REPLACEMENT]
        self._replaces_null: bool = settings[REPLACE_NULL]

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            values = require_map(value, _PURPOSE)
            masks = {name: self._masked(None, values.get(name)) for name in self._names}
            return self.side.write(record, None, {**values, **masks})
        struct = require_struct(value, _PURPOSE)
        values = field_values(struct, struct.schema.fields, replaces_null=self._replaces_null)
        for field in struct.schema.fields:
            if field.name in self._names:
                values[field.name] = self._masked(field.schema, values[field.name])
        return self.side.write(record, schema, checked_struct(struct.schema, values))

    def _masked(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if self._replacement is not None:
            return _replaced(schema, value, self._replacement)
        if type(value) not in _EMPTY:
            raise DataError(f"Cannot mask value of type: {type(value).__name__}")
        return _EMPTY[type(value)]()


def _replaced(schema: Schema | None, value: Any, replacement: str) -> Any:
    if isinstance(value, str):
        return replacement
    if type(value) not in (int, float, Decimal):
        raise DataError(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
    try:
        number = Decimal(replacement)
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number.adjusted()) > _EXPONENT_MAX:
        raise DataError(f"Unable to convert {replacement} to a number")
    if isinstance(value, Decimal):
        return number
    if isinstance(value, float):
        return as_float32(float(number)) if schema is not None and schema.type is Type.FLOAT32 else float(number)
    return wrapped(int(number), BITS[schema.type if schema is not None else Type.INT64])


class MaskFieldOfKey(MaskField):
    side = KEY


class MaskFieldOfValue(MaskField):
    side = VALUE
