"""InsertField: adds topic, partition, offset, timestamp or a fixed text as fields.

Owns the order of the new fields. Must not know where records come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from spark_jobs.connect.base.data import INT32, INT64, STRING, Field, Schema, timestamp_schema
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, invalid
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record, SinkRecord
from spark_jobs.connect.converters.java_text import instant
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
    require_map,
    require_struct,
)

_PURPOSE: Final = "field insertion"
_OPTIONALITY: Final = "A final ! makes the field required, a final ? optional, which is the default."
_STATIC_FIELD: Final = "static.field"
_STATIC_VALUE: Final = "static.value"


def _offset(record: Record) -> int:
    if not isinstance(record, SinkRecord):
        raise DataError(f"Only SinkRecord supported for [{_PURPOSE}], found: {type(record).__name__}")
    return record.offset


_SOURCES: Mapping[str, tuple[Callable[[Record], Any], Schema, str]] = {
    "topic.field": (lambda record: record.topic, STRING, "the record's topic"),
    "partition.field": (lambda record: record.partition, INT32, "the record's partition"),
    "offset.field": (_offset, INT64, "the record's offset; only for sink connectors"),
    "timestamp.field": (lambda record: record.timestamp_ms, timestamp_schema(), "the record's timestamp"),
    _STATIC_FIELD: (lambda _record: None, STRING, "the fixed text"),
}
"""What is inserted by each setting, its schema, and what it is to users."""


class _Insertion(NamedTuple):
    name: str
    schema: Schema
    read: Callable[[Record], Any]


class InsertField(SidedTransformation):
    definition = Definition(
        [
            *(
                Setting(name, Kind.STRING, None, Importance.MEDIUM, f"The field for {what}. {_OPTIONALITY}")
                for name, (_, _, what) in _SOURCES.items()
            ),
            Setting(_STATIC_VALUE, Kind.STRING, None, Importance.MEDIUM, f"The text for {_STATIC_FIELD}."),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        static_value = settings[_STATIC_VALUE]
        self._insertions = [_insertion(name, settings[name], static_value) for name in _SOURCES if settings[name]]
        if not self._insertions:
            raise ConfigError("No field insertion configured")
        if settings[_STATIC_FIELD] and static_value is None:
            raise invalid(_STATIC_VALUE, None, f"No value specified for static field: {settings[_STATIC_FIELD]}")
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._extended)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if value is None:
            return record
        if schema is None:
            return self.side.write(record, None, {**require_map(value, _PURPOSE), **dict(self._inserted(record))})
        struct = require_struct(value, _PURPOSE)
        updated = self._schemas[struct.schema]
        values = field_values(struct, struct.schema.fields, replaces_null=self._replaces_null)
        for name, inserted in self._inserted(record):
            is_time = (field := updated.field(name)) is not None and field.schema.is_logical
            values[name] = instant(inserted) if is_time else inserted
        return self.side.write(record, updated, checked_struct(updated, values))

    def _inserted(self, record: Record) -> Iterator[tuple[str, Any]]:
        for each in self._insertions:
            if (value := each.read(record)) is not None:
                yield each.name, value

    def _extended(self, schema: Schema) -> Schema:
        names = {each.name for each in schema.fields}
        for each in self._insertions:
            if each.name in names:
                raise DataError(f"Cannot create field because of field name duplication {each.name}")
        return basics(schema, fields=(*schema.fields, *(Field(each.name, each.schema) for each in self._insertions)))


def _insertion(setting: str, name: str, static_value: str | None) -> _Insertion:
    read, schema, _ = _SOURCES[setting]
    field = re.fullmatch(r"(.*?)([?!]?)", name, re.DOTALL)
    assert field is not None  # any text matches
    if setting == _STATIC_FIELD:
        read = lambda _record: static_value  # noqa: E731
    return _Insertion(field[1], schema if field[2] == "!" else replace(schema, optional=True), read)


class InsertFieldOfKey(InsertField):
    side = KEY


class InsertFieldOfValue(InsertField):
    side = VALUE
