"""ReplaceField: removes and renames fields.

Owns the choice of fields. Must not know their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from spark_jobs.connect.base.data import Field, Schema
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting
from spark_jobs.connect.base.errors import ConfigError
from spark_jobs.connect.base.records import Record
from spark_jobs.connect.converters.schema_cache import SchemaCache
from spark_jobs.connect.transforms.sides import (
    KEY,
    REPLACE_NULL,
    REPLACE_NULL_SETTING,
    VALUE,
    SidedTransformation,
    basics,
    checked_struct,
    field_value,
    parsable,
    require_map,
    require_struct,
)

_PURPOSE: Final = "field replacement"
_EXCLUDE: Final = "exclude"
_INCLUDE: Final = "include"
_RENAMES: Final = "renames"
_OLD_NAMES: Mapping[str, str] = {_EXCLUDE: "blacklist", _INCLUDE: "whitelist"}


def _parse_renames(pairs: Sequence[str]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        old, colon, new = pair.partition(":")
        if not colon or not new or ":" in new:
            raise ConfigError(f"Invalid rename mapping: {pair}, expected old:new")
        renames[old] = new
    return renames


class ReplaceField(SidedTransformation):
    definition = Definition(
        [
            Setting(_EXCLUDE, Kind.LIST, [], Importance.MEDIUM, "Fields to remove, even if they are in `include`."),
            Setting("blacklist", Kind.LIST, None, Importance.LOW, "Deprecated: an old name of `exclude`."),
            Setting(_INCLUDE, Kind.LIST, [], Importance.MEDIUM, "Fields to keep; if there are any, all others go."),
            Setting("whitelist", Kind.LIST, None, Importance.LOW, "Deprecated: an old name of `include`."),
            Setting(
                _RENAMES,
                Kind.LIST,
                [],
                Importance.MEDIUM,
                "New names of fields, as old:new, with commas between them.",
                parsable(_parse_renames),
            ),
            REPLACE_NULL_SETTING,
        ]
    )

    def configure(self, config: Mapping[str, str]) -> None:
        settings = self.definition.parse(config)
        excluded, included = (
            settings[old] if name not in config and settings[old] is not None else settings[name]
            for name, old in _OLD_NAMES.items()
        )
        self._excluded, self._included = frozenset(excluded), frozenset(included)
        self._renames = _parse_renames(settings[_RENAMES])
        self._replaces_null: bool = settings[REPLACE_NULL]
        self._plans = SchemaCache(self._plan)

    def apply(self, record: Record) -> Record:
        schema, value = self.side.read(record)
        if value is None:
            return record
        if schema is None:
            return self.side.write(
                record, None, {self._renamed(k): v for k, v in require_map(value, _PURPOSE).items() if self._keeps(k)}
            )
        struct = require_struct(value, _PURPOSE)
        updated, sources = self._plans[struct.schema]
        values = {
            name: field_value(struct, field, replaces_null=self._replaces_null) for name, field in sources.items()
        }
        return self.side.write(record, updated, checked_struct(updated, values))

    def _keeps(self, name: str) -> bool:
        return name not in self._excluded and (not self._included or name in self._included)

    def _renamed(self, name: str) -> str:
        return self._renames.get(name, name)

    def _plan(self, schema: Schema) -> tuple[Schema, Mapping[str, Field]]:
        """Return the new schema, and for each of its fields the old one."""
        sources = {self._renamed(each.name): each for each in schema.fields if self._keeps(each.name)}
        return basics(schema, fields=(Field(name, each.schema) for name, each in sources.items())), sources


class ReplaceFieldOfKey(ReplaceField):
    side = KEY


class ReplaceFieldOfValue(ReplaceField):
    side = VALUE
