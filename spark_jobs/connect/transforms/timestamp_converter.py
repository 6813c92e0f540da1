"""TimestampConverter: changes the form of a time: text, number since 1970, Date, Time or Timestamp.

All forms are read to milliseconds since 1970 and written from them, so that finer parts are lost.

Owns the forms. Must not know patterns of dates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

from spark_jobs.connect.base.data import (
    DATE,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Struct,
    Type,
    date_schema,
    time_schema,
    timestamp_schema,
)
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, one_of
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.java_dates import JavaDateFormat
from spark_jobs.connect.converters.java_text import MS_PER_DAY, instant, instant_ms
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    basics,
    checked_struct,
    field_values,
    require_fields_schema,
    require_map,
    require_struct,
)

_PURPOSE: Final = "converting timestamp formats"
_FIELD: Final = "field"
_TARGET: Final = "target.type"
_FORMAT: Final = "format"
_PRECISION: Final = "unix.precision"
_MS_PER_UNIT: Mapping[str, Fraction] = {
    "nanoseconds": Fraction(1, 1_000_000),
    "microseconds": Fraction(1, 1000),
    "milliseconds": Fraction(1),
    "seconds": Fraction(1000),
}


@dataclass(frozen=True, slots=True)
class _Options:
    format: JavaDateFormat | None
    ms_per_unit: Fraction


@dataclass(frozen=True, slots=True)
class _Form:
    """How a time of one form is read and written, in milliseconds, and the schema that it has."""

    read: Callable[[Any, _Options], int]
    write: Callable[[int, _Options], Any]
    schema: Schema


def _read_text(value: Any, options: _Options) -> int:
    if not isinstance(value, str):
        raise DataError(f"Expected string timestamp to be a String, but found {type(value).__name__}")
    if options.format is None:
        raise DataError(f"the time {value!r:.60} is a text: expected the setting {_FORMAT}, which says how to read it")
    try:
        return options.format.parse(value)
    except ValueError as error:
        pattern = options.format.pattern
        raise DataError(f"Could not parse timestamp: value ({value:.60}) does not match pattern ({pattern})") from error


def _write_text(ms: int, options: _Options) -> str:
    assert options.format is not None  # `configure` requires it
    return options.format.format(ms)


def _read_unix(value: Any, options: _Options) -> int:
    if type(value) is not int:
        raise DataError(f"Expected Unix timestamp to be a Long, but found {type(value).__name__}")
    return int(value * options.ms_per_unit)


def _read_instant(value: Any, _options: _Options) -> int:
    if not isinstance(value, (dt.date, dt.time)):
        raise DataError(f"Expected a date, a time or a datetime, but found {type(value).__name__}")
    return instant_ms(value)


_FORMS: Mapping[str, _Form] = {
    "string": _Form(_read_text, _write_text, STRING),
    "unix": _Form(_read_unix, lambda ms, options: int(ms / options.ms_per_unit), INT64),
    "Date": _Form(_read_instant, lambda ms, _options: instant(ms).date(), date_schema()),
    "Time": _Form(_read_instant, lambda ms, _options: instant(ms % MS_PER_DAY).time(), time_schema()),
    "Timestamp": _Form(_read_instant, lambda ms, _options: instant(ms), timestamp_schema()),
}
_LOGICAL: Mapping[str | None, str] = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}
_BY_TYPE: Mapping[Type, str] = {Type.STRING: "string", Type.INT64: "unix"}


class TimestampConverter(SidedTransformation):
    definition = Definition(
        [
            Setting(_FIELD, Kind.STRING, "", Importance.HIGH, "The field with the time; if empty, the whole is it."),
            Setting(
                _TARGET,
                Kind.STRING,
                REQUIRED,
                Importance.HIGH,
                "The new form: string, unix, Date, Time or Timestamp.",
                one_of(*_FORMS),
            ),
            Setting(
                _FORMAT,
                Kind.STRING,
                "",
                Importance.MEDIUM,
                "The pattern of texts, as in Java's SimpleDateFormat; for the new form, or for texts that are read.",
            ),
            Setting(
                _PRECISION,
                Kind.STRING,
                "milliseconds",
                Importance.LOW,
                "What numbers count. Parts of a millisecond are lost.",
                one_of(*_MS_PER_UNIT),
            ),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._field: str = settings[_FIELD]
        self._target = _FORMS[settings[_TARGET]]
        if settings[_TARGET] == "string" and not settings[_FORMAT]:
            raise ConfigError("TimestampConverter requires format option to be specified when using string timestamps")
        self._options = _Options(_date_format(settings[_FORMAT]), _MS_PER_UNIT[settings[_PRECISION]])
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._converted_schema)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            return self.side.write(record, None, self._without_schema(value))
        updated = self._schemas[schema]
        if not self._field:
            return self.side.write(record, updated, self._converted(schema, value))
        converted = None if value is None else self._converted_struct(require_struct(value, _PURPOSE), updated)
        return self.side.write(record, updated, converted)

    def _without_schema(self, value: Any) -> Any:
        if value is None or not self._field:
            return self._converted(None, value)
        values = require_map(value, _PURPOSE)
        return {**values, self._field: self._converted(None, values.get(self._field))}

    def _converted_struct(self, struct: Struct, updated: Schema) -> Struct:
        values = field_values(struct, struct.schema.fields, replaces_null=self._replaces_null)
        field = struct.schema.field(self._field)
        if field is not None:
            values[field.name] = self._converted(field.schema, values[field.name])
        return checked_struct(updated, values)

    def _converted(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        form = _form_of_value(value) if schema is None else _form_of_schema(schema)
        return self._target.write(form.read(value, self._options), self._options)

    def _converted_schema(self, schema: Schema) -> Schema:
        if not self._field:
            return replace(self._target.schema, optional=schema.optional)
        fields = []
        for each in require_fields_schema(schema, _PURPOSE).fields:
            is_chosen = each.name == self._field
            form = replace(self._target.schema, optional=each.schema.optional) if is_chosen else each.schema
            fields.append(Field(each.name, form))
        updated = replace(basics(schema, fields=fields), optional=schema.optional)
        if schema.default is None:
            return updated
        return replace(updated, default=self._converted_struct(schema.default, updated))


def _date_format(pattern: str) -> JavaDateFormat | None:
    if not pattern:
        return None
    try:
        return JavaDateFormat(pattern)
    except ValueError as error:
        raise ConfigError(
            "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps:"
            f" {pattern}: {error}"
        ) from error


def _form_of_schema(schema: Schema) -> _Form:
    name = _LOGICAL.get(schema.name) or _BY_TYPE.get(schema.type)
    if name is None:
        raise DataError(
            f"Schema {schema.name or schema.type.name} does not correspond to a known timestamp type format"
        )
    return _FORMS[name]


def _form_of_value(value: Any) -> _Form:
    match value:
        case bool():
            pass
        case str():
            return _FORMS["string"]
        case int():
            return _FORMS["unix"]
        case dt.date() | dt.time():
            return _FORMS["Timestamp"]
    raise DataError(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")


class TimestampConverterOfKey(TimestampConverter):
    side = KEY


class TimestampConverterOfValue(TimestampConverter):
    side = VALUE
