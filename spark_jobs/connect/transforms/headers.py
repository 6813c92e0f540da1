"""Transforms of headers: DropHeaders, InsertHeader, HeaderFrom.

Owns these three. Must not know how headers are stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.connect.base.api import Transformation
from spark_jobs.connect.base.data import Schema
from spark_jobs.connect.base.definitions import REQUIRED, Definition, Importance, Kind, Setting, one_of
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.converters.value_parser import parse
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    basics,
    checked_struct,
    field_value,
    field_values,
    not_empty_list,
    require_map,
    require_struct,
)


class DropHeaders(Transformation):
    definition = Definition(
        [Setting("headers", Kind.LIST, REQUIRED, Importance.HIGH, "Names of the headers to remove.", not_empty_list)]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        self._names = frozenset(self.definition.parse(config)["headers"])

    def apply(self, record: Record) -> Record:
        return record._replace(headers=tuple(each for each in record.headers if each[0] not in self._names))


class InsertHeader(Transformation):
    definition = Definition(
        [
            Setting("header", Kind.STRING, REQUIRED, Importance.HIGH, "The name of the header."),
            Setting(
                "value.literal",
                Kind.STRING,
                REQUIRED,
                Importance.HIGH,
                "The value of the header, whose type is guessed from the text as SimpleHeaderConverter does.",
            ),
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        self._header = (settings["header"], *parse(settings["value.literal"]))

    def apply(self, record: Record) -> Record:
        return record._replace(headers=(*record.headers, self._header))


class HeaderFrom(SidedTransformation):
    definition = Definition(
        [
            Setting("fields", Kind.LIST, REQUIRED, Importance.HIGH, "Fields that become headers.", not_empty_list),
            Setting(
                "headers",
                Kind.LIST,
                REQUIRED,
                Importance.HIGH,
                "Names of the headers, in the order of the fields.",
                not_empty_list,
            ),
            Setting(
                "operation",
                Kind.STRING,
                REQUIRED,
                Importance.HIGH,
                "`move` removes the fields, `copy` keeps them.",
                one_of("move", "copy"),
            ),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        fields, headers = settings["fields"], settings["headers"]
        if len(fields) != len(headers):
            raise ConfigError("'fields' config must have the same number of elements as 'headers' config.")
        self._headers: list[tuple[str, str]] = list(zip(fields, headers, strict=True))
        self._moved = frozenset(fields if settings["operation"] == "move" else ())
        self._purpose: str = f"header {settings['operation']}"
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._schemas = SchemaCache(self._reduced)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if schema is None:
            values = require_map(value, self._purpose)
            added = tuple((header, None, values.get(field)) for field, header in self._headers)
            kept = {name: item for name, item in values.items() if name not in self._moved}
            return self.side.write(record._replace(headers=record.headers + added), None, kept)
        struct = require_struct(value, self._purpose)
        headers = []
        for name, header in self._headers:
            field = schema.field(name)
            if field is None:
                raise DataError(f"there is no field {name} for the header {header}")
            headers.append((header, field.schema, field_value(struct, field, replaces_null=self._replaces_null)))
        record = record._replace(headers=(*record.headers, *headers))
        if not self._moved:
            return record
        reduced = self._schemas[schema]
        values = field_values(struct, reduced.fields, replaces_null=self._replaces_null)
        return self.side.write(record, reduced, checked_struct(reduced, values))

    def _reduced(self, schema: Schema) -> Schema:
        return basics(schema, fields=(each for each in schema.fields if each.name not in self._moved))


class HeaderFromOfKey(HeaderFrom):
    side = KEY


class HeaderFromOfValue(HeaderFrom):
    side = VALUE
