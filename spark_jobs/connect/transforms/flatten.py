"""Flatten: puts the fields of inner structs or maps into the outermost one, with their paths as names.

Owns the new names and schemas. Must not know what is in lists, which stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from spark_jobs.connect.base.data import Field, Schema, Struct, Type
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.sides import (
    KEY,
    VALUE,
    SidedTransformation,
    basics,
    field_value,
    require_map,
    require_struct,
)

_PURPOSE: Final = "flattening"
_DELIMITER: Final = "delimiter"


class Flatten(SidedTransformation):
    definition = Definition(
        [Setting(_DELIMITER, Kind.STRING, ".", Importance.MEDIUM, "What stands between the names of a path.")]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._delimiter: str = self.definition.parse(config)[_DELIMITER]
        self._schemas = SchemaCache(self._flat_schema)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if value is None:
            return record
        try:
            if schema is None:
                return self.side.write(record, None, dict(self._flat_map(require_map(value, _PURPOSE), "")))
            struct = require_struct(value, _PURPOSE)
            flat = Struct(self._schemas[schema])
            flat.values.update(self._flat_struct(struct, ""))
        except RecursionError:
            raise DataError("the value is nested too deeply to be flattened") from None
        return self.side.write(record, flat.schema, flat)

    def _path(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flat_map(self, value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, item in value.items():
            path = self._path(prefix, name)
            if isinstance(item, dict):
                yield from self._flat_map(item, path)
            elif isinstance(item, Struct):
                raise DataError(f"Flatten transformation does not support Struct for record without schemas: {path}")
            else:
                yield path, item

    def _flat_struct(self, struct: Struct, prefix: str) -> Iterator[tuple[str, Any]]:
        for field in struct.schema.fields:
            path = self._path(prefix, field.name)
            value = field_value(struct, field, replaces_null=True)
            if field.schema.type is not Type.STRUCT:
                yield path, value
            elif value is not None:
                yield from self._flat_struct(value, path)

    def _flat_schema(self, schema: Schema) -> Schema:
        return basics(schema, fields=self._flat_fields(schema, "", is_optional=schema.optional, parent=schema.default))

    def _flat_fields(self, schema: Schema, prefix: str, *, is_optional: bool, parent: Any) -> Iterator[Field]:
        """Yield fields that are optional if a struct around them is, and have defaults from the default of `parent`."""
        for field in schema.fields:
            path = self._path(prefix, field.name)
            optional = is_optional or field.schema.optional
            default = field.schema.default
            if default is None and parent is not None:
                default = field_value(parent, field, replaces_null=True)
            if field.schema.type is Type.STRUCT:
                yield from self._flat_fields(field.schema, path, is_optional=optional, parent=default)
            elif field.schema.type is Type.MAP:
                raise DataError(f"Flatten transformation does not support MAP for record with schemas (field {path})")
            else:
                yield Field(path, replace(field.schema, optional=optional, default=default))


class FlattenOfKey(Flatten):
    side = KEY


class FlattenOfValue(Flatten):
    side = VALUE
