"""SetSchemaMetadata: sets the name or the version of a schema.

Owns the new schema. Must not know values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from spark_jobs.connect.base.data import Schema, Struct
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    checked_struct,
    field_values,
)

_NAME: Final = "schema.name"
_VERSION: Final = "schema.version"


class SetSchemaMetadata(SidedTransformation):
    definition = Definition(
        [
            Setting(_NAME, Kind.STRING, None, Importance.HIGH, "The new name of the schema."),
            Setting(_VERSION, Kind.INT, None, Importance.HIGH, "The new version of the schema."),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        given = {key: settings[f"schema.{key}"] for key in ("name", "version")}
        self._changes = {key: value for key, value in given.items() if value is not None}
        if not self._changes:
            raise ConfigError(f"Neither schema name nor version configured: expected {_NAME} or {_VERSION}")
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._changed)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            if value is None:
                return record
            raise DataError("Schema required for [updating schema metadata]")
        updated = self._schemas[schema]
        if isinstance(value, Struct):
            values = field_values(value, updated.fields, replaces_null=self._replaces_null)
            value = checked_struct(updated, values)
        return self.side.write(record, updated, value)

    def _changed(self, schema: Schema) -> Schema:
        return replace(schema, **self._changes)


class SetSchemaMetadataOfKey(SetSchemaMetadata):
    side = KEY


class SetSchemaMetadataOfValue(SetSchemaMetadata):
    side = VALUE
