"""Transforms that take fields out of a structure or put a value into one: ExtractField, HoistField, ValueToKey.

Owns these three. Must not know the types of fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_jobs.connect.base.api import Transformation
from spark_jobs.connect.base.data import Field, Schema, struct_schema
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.field_paths import SYNTAX, SYNTAX_SETTING, FieldPath
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


class ExtractField(SidedTransformation):
    definition = Definition(
        [
            Setting("field", Kind.STRING, REQUIRED, Importance.MEDIUM, "The field whose value replaces the whole."),
            REPLACE_NULL_SETTING,
            SYNTAX_SETTING,
        ]
    )
    _PURPOSE: Final = "field extraction"

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._text: str = settings["field"]
        self._path = FieldPath(self._text, settings[SYNTAX])
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._fields = SchemaCache(self._field)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            found = None if value is None else self._path.value_of_map(require_map(value, self._PURPOSE))
            return self.side.write(record, None, found)
        field = self._fields[schema]
        if value is None:
            return self.side.write(record, field.schema, None)
        struct = require_struct(value, self._PURPOSE)
        found = self._path.value_of_struct(struct, replaces_null=self._replaces_null)
        return self.side.write(record, field.schema, found)

    def _field(self, schema: Schema) -> Field:
        field = self._path.field_of(schema)
        if field is None:
            raise DataError(f"Unknown field: {self._text}")
        return field


class ExtractFieldOfKey(ExtractField):
    side = KEY


class ExtractFieldOfValue(ExtractField):
    side = VALUE


class HoistField(SidedTransformation):
    definition = Definition(
        [
            Setting(
                "field",
                Kind.STRING,
                REQUIRED,
                Importance.MEDIUM,
                "The only field of the new struct, which has the whole.",
            )
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._name: str = self.definition.parse(config)["field"]
        self._schemas = SchemaCache(lambda schema: struct_schema({self._name: schema}))

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            return self.side.write(record, None, {self._name: value})
        updated = self._schemas[schema]
        return self.side.write(record, updated, checked_struct(updated, {self._name: value}))


class HoistFieldOfKey(HoistField):
    side = KEY


class HoistFieldOfValue(HoistField):
    side = VALUE


class ValueToKey(Transformation):
    definition = Definition(
        [
            Setting(
                "fields", Kind.LIST, REQUIRED, Importance.HIGH, "Fields of the value that make the key.", not_empty_list
            ),
            REPLACE_NULL_SETTING,
        ]
    )
    _PURPOSE: Final = "copying fields from value to key"

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._names: list[str] = settings["fields"]
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._key_schema)

    def apply(self, record: Record) -> Record:
        if record.value_schema is None:
            value = require_map(record.value, self._PURPOSE)
            return record._replace(key_schema=None, key={name: value.get(name) for name in self._names})
        struct = require_struct(record.value, self._PURPOSE)
        schema = self._schemas[struct.schema]
        key = field_values(struct, schema.fields, replaces_null=self._replaces_null)
        return record._replace(key_schema=schema, key=checked_struct(schema, key))

    def _key_schema(self, schema: Schema) -> Schema:
        fields = {name: schema.field(name) for name in self._names}
        for name, field in fields.items():
            if field is None:
                raise DataError(f"Field does not exist: {name}")
        return struct_schema({name: field.schema for name, field in fields.items() if field is not None})
