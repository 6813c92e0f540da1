"""What transforms of a record's key or value have in common.

A transform that acts on either is a class that knows no side, and two subclasses that do: `X$Key` and `X$Value` in
Java are `XOfKey` and `XOfValue` here.

Owns access to a side, to fields, and the errors of values of the wrong kind. Must not know any transform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Protocol, TypeVar

from spark_jobs.connect.base.api import Transformation
from spark_jobs.connect.base.data import Field, Schema, Struct, Type
from spark_jobs.connect.base.definitions import Check, Importance, Kind, Setting, invalid
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.base.records import Record

REPLACE_NULL: Final = "replace.null.with.default"
REPLACE_NULL_SETTING: Final = Setting(
    REPLACE_NULL,
    Kind.BOOLEAN,
    True,
    Importance.MEDIUM,
    "Whether null in a field that has a default becomes the default.",
)


class Side(Protocol):
    """The key or the value of records."""

    def read(self, record: Record) -> tuple[Schema | None, Any]: ...

    def write(self, record: Record, schema: Schema | None, value: Any) -> Record: ...


class _KeySide:
    def read(self, record: Record) -> tuple[Schema | None, Any]:
        return record.key_schema, record.key

    def write(self, record: Record, schema: Schema | None, value: Any) -> Record:
        return record._replace(key_schema=schema, key=value)


class _ValueSide:
    def read(self, record: Record) -> tuple[Schema | None, Any]:
        return record.value_schema, record.value

    def write(self, record: Record, schema: Schema | None, value: Any) -> Record:
        return record._replace(value_schema=schema, value=value)


KEY: Final[Side] = _KeySide()
VALUE: Final[Side] = _ValueSide()


class SidedTransformation(Transformation):
    """A transform of one side."""

    side: ClassVar[Side]


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a value without a schema that must be a map. Raises DataError."""
    if not isinstance(value, dict):
        raise DataError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_kind(value)}")
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that must be a struct. Raises DataError."""
    if not isinstance(value, Struct):
        raise DataError(f"Only Struct objects supported for [{purpose}], found: {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def field_value(struct: Struct, field: Field, *, replaces_null: bool) -> Any:
    """Return the value of a field; in the place of null its default, if it has one and `replaces_null`."""
    value = struct.values.get(field.name)
    return field.schema.default if value is None and replaces_null else value


def field_values(struct: Struct, fields: Iterable[Field], *, replaces_null: bool) -> dict[str, Any]:
    """Return the values of some fields by name, each as `field_value` has it."""
    return {each.name: field_value(struct, each, replaces_null=replaces_null) for each in fields}


def require_fields_schema(schema: Schema, purpose: str) -> Schema:
    """Return a schema that must be one of structs. Raises DataError."""
    if schema.type is not Type.STRUCT:
        raise DataError(f"Only Struct objects supported for [{purpose}], found a schema of type {schema.type.name}")
    return schema


def basics(source: Schema, kind: Type = Type.STRUCT, fields: Iterable[Field] = ()) -> Schema:
    """Return a required schema with the name, version, doc and parameters of another one, and no default."""
    return Schema(
        kind,
        name=source.name,
        version=source.version,
        doc=source.doc,
        parameters=source.parameters,
        fields=tuple(fields),
    )


def checked_struct(schema: Schema, values: Mapping[str, Any]) -> Struct:
    """Return a struct whose fields all have values. Raises DataError for null in a required field."""
    for field in schema.fields:
        if values.get(field.name) is None and not field.schema.optional and field.schema.default is None:
            raise DataError(f"Invalid value: null used for required field: {field.name!r}")
    struct = Struct(schema)
    struct.values.update(values)
    return struct


def not_empty_list(name: str, value: Any) -> None:
    if not value:
        raise invalid(name, value, "Empty list")


Parsed = TypeVar("Parsed")


def parsable(parse: Callable[[Any], Parsed]) -> Check:
    """Return the check that a value can be parsed by a function that raises ConfigError."""

    def check(name: str, value: Any) -> None:
        try:
            parse(value)
        except ConfigError as error:
            raise invalid(name, value, str(error)) from error

    return check
