"""Schemas of Connect as Avro schemas and back, as Confluent's converter maps them.

| Connect | Avro |
|---|---|
| INT8, INT16 | int with `connect.type` |
| STRUCT | record; without a name `io.confluent.connect.avro.ConnectDefault` |
| MAP with required strings as keys | map |
| other MAP | array of records `MapEntry` with `key` and `value` |
| optional | union with null |
| Decimal, Date, Time, Timestamp | decimal, date, time-millis, timestamp-millis |
| name, version, doc, parameters, default | `connect.name`, `connect.version` and so on |

Unions of several types are structs named `io.confluent.connect.avro.Union`, with an optional field for each type.

Owns this mapping. Must not know values, nor fastavro. Avro schemas from outside are those that fastavro has parsed:
names are full, and `named` has what they mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from spark_jobs.connect.base.data import (
    DATE,
    DECIMAL,
    SCALE,
    STRING,
    TIME,
    TIMESTAMP,
    Field,
    Schema,
    Struct,
    Type,
    date_schema,
    decimal_schema,
    from_stored,
    time_schema,
    timestamp_schema,
    to_stored,
)
from spark_jobs.connect.base.errors import DataError

_NAMESPACE: Final = "io.confluent.connect.avro"
_DEFAULT_NAME: Final = f"{_NAMESPACE}.ConnectDefault"
_MAP_ENTRY: Final = f"{_NAMESPACE}.MapEntry"
UNION: Final = f"{_NAMESPACE}.Union"
_ENUM: Final = f"{_NAMESPACE}.Enum"
_RECORD_DOC: Final = f"{_NAMESPACE}.record.doc"
_FIELD_DOC: Final = f"{_NAMESPACE}.field.doc."
_FIELD_DEFAULT: Final = f"{_NAMESPACE}.field.default"
_INTERNAL_TYPE: Final = "connect.internal.type"
FIXED_SIZE: Final = "connect.fixed.size"
_PRECISION: Final = "connect.decimal.precision"
_PRECISION_DEFAULT: Final = 64
_PRIMITIVES: Mapping[Type, str] = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_BY_PRIMITIVE: Mapping[str, Type] = {name: kind for kind, name in _PRIMITIVES.items()}  # the last int is INT32
_LOGICAL_TYPES: Mapping[str, str] = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_BY_LOGICAL_TYPE: Mapping[tuple[str, str], Schema] = {
    ("int", "date"): date_schema(),
    ("int", "time-millis"): time_schema(),
    ("long", "timestamp-millis"): timestamp_schema(),
}
_BY_CONNECT_TYPE: Mapping[str, Type] = {"int8": Type.INT8, "int16": Type.INT16}

ANYTHING: Final[Mapping[str, Any]] = {
    "type": "record",
    "name": "Anything",
    "namespace": _NAMESPACE,
    "fields": [
        *(
            {"name": name, "type": ["null", name], "default": None}
            for name in ("boolean", "bytes", "double", "float", "int", "long", "string")
        ),
        {"name": "array", "type": ["null", {"type": "array", "items": "Anything"}], "default": None},
        {
            "name": "map",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "MapEntry",
                        "fields": [{"name": "key", "type": "Anything"}, {"name": "value", "type": "Anything"}],
                    },
                },
            ],
            "default": None,
        },
    ],
}
"""The schema of values without one: a record in which at most one field is set."""
ANYTHING_NAME: Final = f"{_NAMESPACE}.Anything"


def is_union(schema: Schema) -> bool:
    """Whether a struct stands for a union: only one of its fields has a value."""
    return schema.type is Type.STRUCT and schema.name == UNION


def has_text_keys(schema: Schema) -> bool:
    """Whether a map is one of Avro, whose keys are strings."""
    return schema.key_schema is not None and schema.key_schema.type is Type.STRING and not schema.key_schema.optional


class AvroSchemaWriter:
    """Translates one schema of Connect, with those in it."""

    def __init__(self) -> None:
        self._structs: list[tuple[Schema, str]] = []

    def write(self, schema: Schema | None) -> Any:
        """Return the Avro schema as JSON. Raises DataError."""
        if schema is None:
            return ANYTHING
        if is_union(schema):
            members = [self._required(each.schema) for each in schema.fields]
            return ["null", *members] if schema.optional else members
        avro = self._required(schema)
        if not schema.optional:
            return avro
        return ["null", avro] if schema.default is None or schema.type is Type.STRUCT else [avro, "null"]

    def _required(self, schema: Schema) -> Any:
        if schema.type is Type.STRUCT:
            return self._record(replace(schema, optional=False))
        if schema.type in (Type.ARRAY, Type.MAP):
            base = self._collection(schema)
        elif FIXED_SIZE in schema.parameters and schema.name is not None:
            base = {"type": "fixed", **_split(schema.name), "size": int(schema.parameters[FIXED_SIZE])}
        else:
            base = {"type": _PRIMITIVES[schema.type]}
        if schema.name == DECIMAL:
            base |= _decimal_properties(schema)
        base |= _metadata(schema)
        if schema.type in (Type.INT8, Type.INT16):
            base["connect.type"] = schema.type.value
        if schema.is_logical and schema.name != DECIMAL:
            base["logicalType"] = _LOGICAL_TYPES[schema.name or ""]
        return base["type"] if len(base) == 1 else base

    def _collection(self, schema: Schema) -> dict[str, Any]:
        if schema.type is Type.ARRAY:
            return {"type": "array", "items": self.write(schema.value_schema)}
        if has_text_keys(schema):
            return {"type": "map", "values": self.write(schema.value_schema)}
        name = _split(schema.name or self._new_name(_MAP_ENTRY))
        fields = [{"name": "key", "type": self.write(schema.key_schema)}]
        fields.append({"name": "value", "type": self.write(schema.value_schema)})
        return {"type": "array", "items": {"type": "record", **name, "fields": fields, _INTERNAL_TYPE: "MapEntry"}}

    def _record(self, schema: Schema) -> Any:
        """Return a record; of one that there was before, only its name."""
        for known, name in self._structs:
            if known == schema:
                return name
            if schema.name is not None and name == schema.name:
                raise DataError(f"two structs in a schema have the name {name}, but different fields")
        name = schema.name or self._new_name(_DEFAULT_NAME)
        self._structs.append((schema, name))
        doc = schema.parameters.get(_RECORD_DOC)
        fields = [self._field(schema, each) for each in schema.fields]
        described = {} if doc is None else {"doc": doc}
        return {"type": "record", **_split(name), **described, "fields": fields, **_metadata(schema)}

    def _new_name(self, name: str) -> str:
        names = {each for _, each in self._structs}
        count = 1
        while (found := name if count == 1 else f"{name}{count}") in names:
            count += 1
        if name == _MAP_ENTRY:
            self._structs.append((STRING, found))  # reserves the name
        return found

    def _field(self, parent: Schema, field: Field) -> dict[str, Any]:
        avro = {"name": field.name, "type": self.write(field.schema)}
        doc = parent.parameters.get(_FIELD_DOC + field.name)
        if doc is not None:
            avro["doc"] = doc
        is_nullable_struct = field.schema.type is Type.STRUCT and field.schema.optional
        if field.schema.default is not None and not is_nullable_struct:
            avro["default"] = _default_json(field.schema, field.schema.default)
        elif field.schema.optional:
            avro["default"] = None
        return avro


def _split(name: str) -> dict[str, str]:
    namespace, _, simple = name.rpartition(".")
    return {"name": simple, "namespace": namespace} if namespace else {"name": simple}


def _decimal_properties(schema: Schema) -> dict[str, Any]:
    scale = int(schema.parameters.get(SCALE, "0"))
    precision = int(schema.parameters.get(_PRECISION, _PRECISION_DEFAULT))
    return {"scale": scale, "precision": precision, "logicalType": "decimal"}


def _metadata(schema: Schema) -> dict[str, Any]:
    parameters = {key: value for key, value in schema.parameters.items() if key != _FIELD_DEFAULT}
    has_default = schema.default is not None and _FIELD_DEFAULT not in schema.parameters
    found = {
        "connect.doc": schema.doc,
        "connect.version": schema.version,
        "connect.parameters": parameters or None,
        "connect.default": _default_json(schema, schema.default) if has_default else None,
        "connect.name": schema.name,
    }
    return {key: value for key, value in found.items() if value is not None}


def _default_json(schema: Schema, value: Any) -> Any:
    """Return a default as Avro has it in a schema: bytes are texts of their codes."""
    if value is None:
        return None
    if schema.is_logical:
        value = to_stored(schema, value)
    if isinstance(value, bytes):
        return value.decode("latin-1")
    items = schema.value_schema
    match value:
        case Struct():
            return {each.name: _default_json(each.schema, value[each.name]) for each in value.schema.fields}
        case list() if items is not None:
            return [_default_json(items, each) for each in value]
        case dict() if items is not None and schema.key_schema is not None:
            if has_text_keys(schema):
                return {key: _default_json(items, each) for key, each in value.items()}
            keys = schema.key_schema
            return [{"key": _default_json(keys, k), "value": _default_json(items, v)} for k, v in value.items()]
    return value


class AvroSchemaReader:
    """Translates Avro schemas; `named` has the records, enums and fixed types by their full names."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []

    def read(self, avro: Any, *, optional: bool = False, default: Any = None) -> Schema:
        """Return the schema of Connect. `default` is JSON. Raises DataError for what Connect does not have."""
        if isinstance(avro, list):
            return self._union(avro, optional=optional)
        avro = resolved(avro, self._named)
        kind = avro["type"]
        if kind == "null":
            raise DataError("Standalone null schemas are not supported by this converter")
        read_kind = self._kinds().get(kind)
        schema = _primitive(avro, kind) if read_kind is None else read_kind(avro)
        return self._decorated(avro, schema, optional=optional, default=default)

    def _kinds(self) -> Mapping[str, Callable[[Mapping[str, Any]], Schema]]:
        return {
            "array": self._array,
            "map": lambda avro: Schema(Type.MAP, key_schema=STRING, value_schema=self.read(avro["values"])),
            "record": self._record,
            "error": self._record,
            "enum": _enum,
            "fixed": _fixed,
        }

    def _union(self, members: list[Any], *, optional: bool) -> Schema:
        others = [each for each in members if each != "null"]
        optional = optional or len(others) < len(members)
        if len(members) == 2 and len(others) == 1:
            return self.read(others[0], optional=True)
        fields = [Field(member_name(each, self._named), self.read(each, optional=True)) for each in others]
        if len({each.name for each in fields}) < len(fields):
            raise DataError("Multiple union schemas map to the Connect union field name")
        return Schema(Type.STRUCT, optional, UNION, fields=tuple(fields))

    def _array(self, avro: Mapping[str, Any]) -> Schema:
        items = avro["items"]
        if not is_map_entry(items, self._named):
            return Schema(Type.ARRAY, value_schema=self.read(items))
        fields = {each["name"]: each["type"] for each in resolved(items, self._named)["fields"]}
        if fields.keys() != {"key", "value"}:
            raise DataError(f"a map entry has the fields {', '.join(fields)}: expected key and value")
        return Schema(Type.MAP, key_schema=self.read(fields["key"]), value_schema=self.read(fields["value"]))

    def _record(self, avro: Mapping[str, Any]) -> Schema:
        name = avro["name"]
        if name in self._open:
            raise DataError(f"the Avro record {name} contains itself: schemas of Connect cannot")
        self._open.append(name)
        try:
            fields = tuple(Field(each["name"], self._field(each)) for each in avro["fields"])
        finally:
            self._open.pop()
        parameters = {} if avro.get("doc") is None else {_RECORD_DOC: avro["doc"]}
        parameters |= {_FIELD_DOC + each["name"]: each["doc"] for each in avro["fields"] if each.get("doc") is not None}
        return Schema(Type.STRUCT, parameters=parameters, fields=fields)

    def _field(self, avro: Mapping[str, Any]) -> Schema:
        return self.read(avro["type"], default=avro.get("default"))

    def _decorated(self, avro: Mapping[str, Any], schema: Schema, *, optional: bool, default: Any) -> Schema:
        """Return a schema with what Avro keeps of Connect's name, version, doc, parameters and default."""
        parameters = dict(schema.parameters)
        given = avro.get("connect.parameters", {})
        if not isinstance(given, dict) or not all(isinstance(each, str) for each in given.values()):
            raise DataError(f"connect.parameters is {given!r:.100}: expected texts by name")
        parameters |= given
        parameters |= {key: str(value) for key, value in avro.items() if key.startswith("avro")}
        if default is None:
            default = avro.get("connect.default")
        elif "connect.default" not in avro:
            parameters[_FIELD_DEFAULT] = "true"
        schema = replace(
            schema,
            optional=optional,
            name=schema.name or _connect_name(avro),
            version=schema.version if schema.version is not None else avro.get("connect.version"),
            doc=avro.get("connect.doc"),
            parameters=parameters,
        )
        return schema if default is None else replace(schema, default=read_default(schema, default))


def resolved(avro: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition of a type that may be a name, or stand within another one. Raises DataError."""
    while isinstance(avro, dict) and isinstance(avro.get("type"), dict):
        avro = avro["type"]
    if isinstance(avro, str):
        return cast(Mapping[str, Any], named.get(avro, {"type": avro}))
    if not isinstance(avro, dict) or not isinstance(avro.get("type"), str):
        raise DataError(f"{avro!r:.100} is not an Avro type that Connect has")
    return resolved(avro["type"], named) if avro["type"] in named else avro


def member_name(avro: Any, named: Mapping[str, Any]) -> str:
    """Return the name of the field that stands for a type of a union."""
    found = resolved(avro, named)
    return str(found["name"]).rpartition(".")[2] if "name" in found else str(found["type"])


def is_map_entry(avro: Any, named: Mapping[str, Any]) -> bool:
    """Whether the items of an array are entries of a map."""
    if isinstance(avro, list):
        return False
    found = resolved(avro, named)
    return found["type"] == "record" and (found["name"] == _MAP_ENTRY or found.get(_INTERNAL_TYPE) == "MapEntry")


def _connect_name(avro: Mapping[str, Any]) -> str | None:
    name = avro.get("connect.name", avro.get("name"))
    if name is None or name.startswith(_DEFAULT_NAME):
        return None
    return str(name)


def _primitive(avro: Mapping[str, Any], kind: str) -> Schema:
    logical = str(avro.get("logicalType", ""))
    if kind == "bytes" and logical == "decimal":
        return _decimal(avro)
    if (kind, logical) in _BY_LOGICAL_TYPE:
        return _BY_LOGICAL_TYPE[kind, logical]
    if kind == "int" and "connect.type" in avro:
        connect_type = avro["connect.type"]
        if connect_type not in _BY_CONNECT_TYPE:
            raise DataError(f"connect.type is {connect_type!r}: expected one of {', '.join(_BY_CONNECT_TYPE)}")
        return Schema(_BY_CONNECT_TYPE[connect_type])
    if kind not in _BY_PRIMITIVE:
        raise DataError(f"Couldn't translate unsupported schema type {kind}.")
    return Schema(_BY_PRIMITIVE[kind])


def _decimal(avro: Mapping[str, Any]) -> Schema:
    schema = decimal_schema(int(avro.get("scale", 0)))
    precision = int(avro.get("precision", _PRECISION_DEFAULT))
    if precision == _PRECISION_DEFAULT:
        return schema
    return replace(schema, parameters={**schema.parameters, _PRECISION: str(precision)})


def _fixed(avro: Mapping[str, Any]) -> Schema:
    schema = _decimal(avro) if avro.get("logicalType") == "decimal" else Schema(Type.BYTES)
    return replace(schema, parameters={**schema.parameters, FIXED_SIZE: str(avro["size"])})


def _enum(avro: Mapping[str, Any]) -> Schema:
    symbols = {f"{_ENUM}.{symbol}": symbol for symbol in avro["symbols"]}
    return Schema(Type.STRING, parameters={_ENUM: avro["name"], **symbols})


def read_default(schema: Schema, found: Any) -> Any:
    """Return the value of a default in a schema. Raises DataError if it does not fit."""
    if found is None:
        return None
    if is_union(schema):
        first = schema.fields[0]
        return Struct(schema, {first.name: read_default(first.schema, found)})
    try:
        return _READ_DEFAULTS.get(schema.type, _read_plain_default)(schema, found)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise DataError(f"the default {found!r:.100} is not a value of {schema.type.name}: {error}") from error


def _read_plain_default(schema: Schema, found: Any) -> Any:
    if schema.type is Type.BYTES:
        found = found.encode("latin-1")
    elif schema.type in (Type.FLOAT32, Type.FLOAT64):
        found = float(found)
    return from_stored(schema, found) if schema.is_logical else found


def _read_list_default(schema: Schema, found: Any) -> Any:
    assert schema.value_schema is not None
    return [read_default(schema.value_schema, each) for each in found]


def _read_map_default(schema: Schema, found: Any) -> Any:
    keys, items = schema.key_schema, schema.value_schema
    assert keys is not None
    assert items is not None
    pairs = found.items() if isinstance(found, dict) else ((each["key"], each["value"]) for each in found)
    return {read_default(keys, key): read_default(items, item) for key, item in pairs}


def _read_struct_default(schema: Schema, found: Any) -> Any:
    values = {each.name: read_default(each.schema, found[each.name]) for each in schema.fields if each.name in found}
    return Struct(schema, values)


_READ_DEFAULTS: Mapping[Type, Callable[[Schema, Any], Any]] = {
    Type.ARRAY: _read_list_default,
    Type.MAP: _read_map_default,
    Type.STRUCT: _read_struct_default,
}
