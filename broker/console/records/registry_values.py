"""Opens keys and values that carry the id of a schema (Confluent's wire format), or an Avro file with its schema.

Owns the formats. Must not know how records are read. A value that its schema does not open stays as it is, with the
reason. The library `fastavro` is imported when a value needs it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.console.records.avro_limits import require_bounded
from broker.console.records.pieces import Found
from broker.console.records.schemas import NoSchemaError
from broker.console.records.values import Form, ShownRecord, ShownValue, indented

if TYPE_CHECKING:
    from broker.console.console import Console

MAGIC: Final = 0
PREFIX_SIZE: Final = 5
AVRO_FILE: Final = b"Obj\x01"
OPENED_SIZE_MAX: Final = 1 << 20
AVRO_SIZE_MAX: Final = 16 << 10
"""Bytes of a value that is opened as Avro. The library opens a value in one step, and nothing else runs during it."""
AVRO_FILE_ROWS_MAX: Final = 100
SCHEMA_SIZE_MAX: Final = 64 << 10
SCHEMAS_MAX: Final = 50
"""Schemas of the records of one page, or of one step of a search."""
SCHEMA_NAME_MAX: Final = 100
REASON_MAX: Final = 200
_FILE_METADATA: Final = {"type": "map", "values": "bytes"}

Open = Callable[[bytes], tuple[Form, str]]


class Opened(NamedTuple):
    """A value that its schema has opened: JSON, and the name of the schema."""

    form: Form
    text: str
    schema: str


class Unopened(NamedTuple):
    """A value that its schema has not opened, and why."""

    schema: str
    problem: str


class _Reader(NamedTuple):
    """What opens the values of one schema."""

    schema: str
    open: Open


class SchemaValues:
    """Opens keys and values with the schemas of their records. `opened` runs in a thread."""

    def __init__(self, registered: dict[int, dict[str, Any] | NoSchemaError]) -> None:
        self._registered = registered
        self._readers: dict[int, _Reader | Unopened] = {}
        self.unopened_count = 0
        """How many values carry a schema that did not open them."""

    def opened(self, data: bytes) -> Opened | Unopened | None:
        """Return a value as its schema opens it; None if it carries none."""
        if _is_avro_file(data):
            reader: _Reader | Unopened = _Reader("schema of the value itself", _avro_file)
        else:
            schema_id = _schema_id(data)
            if schema_id is None:
                return None
            if schema_id not in self._readers:
                self._readers[schema_id] = _reader(schema_id, self._registered[schema_id])
            reader = self._readers[schema_id]
        result = reader if isinstance(reader, Unopened) else _read(reader, bytes(data))
        self.unopened_count += isinstance(result, Unopened)
        return result

    def text(self, data: bytes) -> str | None:
        """Return a value as JSON; None if no schema opens it."""
        found = self.opened(data)
        return found.text if isinstance(found, Opened) else None


async def schema_values(console: Console, found: Sequence[Found]) -> SchemaValues:
    """Return what opens the keys and values of some records."""
    ids = await console.services.cpu_pool.run(lambda: _schema_ids(found))
    registered: dict[int, dict[str, Any] | NoSchemaError] = {}
    for number, schema_id in enumerate(sorted(ids)):
        try:
            if number >= SCHEMAS_MAX:
                raise NoSchemaError(f"the records have {len(ids)} schemas, {SCHEMAS_MAX} at most are used")
            registered[schema_id] = await console.schemas.schema(schema_id)
        except NoSchemaError as error:
            registered[schema_id] = error
    return SchemaValues(registered)


def _schema_ids(found: Sequence[Found]) -> set[int]:
    parts = (data for each in found for data in (each.record.key, each.record.value) if data is not None)
    return {schema_id for data in parts if (schema_id := _schema_id(data)) is not None}


async def with_schemas(
    console: Console, found: Sequence[Found], rows: Sequence[ShownRecord], size_max: int, *, is_pretty: bool
) -> None:
    """Replace the values of `rows` that a schema opens, and name the schema of the others."""
    values = await schema_values(console, found)

    def open_all() -> None:
        for each, row in zip(found, rows, strict=True):
            if each.record.key is not None:
                row["key"] = _shown(values, each.record.key, row["key"], size_max, is_pretty)
            if each.record.value is not None:
                row["value"] = _shown(values, each.record.value, row["value"], size_max, is_pretty)

    await console.services.cpu_pool.run(open_all)


def _shown(values: SchemaValues, data: bytes, raw: ShownValue, size_max: int, is_pretty: bool) -> ShownValue:
    if raw["form"] not in ("hex", "text"):
        return raw
    result = values.opened(data)
    if result is None:
        return raw
    if isinstance(result, Unopened):
        return {**raw, "schema": result.schema, "problem": result.problem}
    text = indented(result.text) if is_pretty else result.text
    return ShownValue(
        form=result.form,
        text=text[:size_max],
        size=len(data),
        is_truncated=len(text) > size_max,
        schema=result.schema,
    )


def _schema_id(data: bytes) -> int | None:
    if len(data) < PREFIX_SIZE or data[0] != MAGIC:
        return None
    return int.from_bytes(bytes(data[1:PREFIX_SIZE]))


def _is_avro_file(data: bytes) -> bool:
    return bytes(data[:4]) == AVRO_FILE


def _read(reader: _Reader, data: bytes) -> Opened | Unopened:
    if len(data) > OPENED_SIZE_MAX:
        return Unopened(reader.schema, f"{len(data)} bytes, expected at most {OPENED_SIZE_MAX}")
    try:
        form, text = reader.open(data)
    except Exception as error:
        # The bytes are untrusted, and each library raises its own exceptions for malformed ones.
        return Unopened(reader.schema, f"the value does not match it: {_reason(error)}")
    return Opened(form, text, reader.schema)


def _reader(schema_id: int, registered: dict[str, Any] | NoSchemaError) -> _Reader | Unopened:
    """Return what opens the values of a registered schema."""
    title = f"schema {schema_id}"
    if isinstance(registered, NoSchemaError):
        return Unopened(title, str(registered))
    kind, schema = registered.get("schemaType", "AVRO"), registered.get("schema", "")
    title = f"{kind} {title}"[:SCHEMA_NAME_MAX]
    if kind not in _OPENERS:
        return Unopened(title, f"expected one of {', '.join(_OPENERS)}")
    if not isinstance(schema, str) or len(schema) > SCHEMA_SIZE_MAX:
        return Unopened(title, f"expected a text of at most {SCHEMA_SIZE_MAX} characters")
    try:
        return _Reader(title, _OPENERS[kind](schema))
    except Exception as error:
        # Schemas are untrusted as well.
        return Unopened(title, f"it cannot be used: {_reason(error)}")


def _avro(schema: str) -> Open:
    import fastavro

    declared = json.loads(schema)
    require_bounded(declared)
    parsed = fastavro.parse_schema(declared)
    return lambda data: ("avro", _json(fastavro.schemaless_reader(_avro_input(data, PREFIX_SIZE), parsed, None)))


def _json_schema(_: str) -> Open:
    return lambda data: ("json", data[PREFIX_SIZE:].decode())


def _protobuf(schema: str) -> Open:
    from broker.console.records.protobuf_wire import fields_of, parse

    file = parse(schema)
    return lambda data: ("protobuf", _json(fields_of(data[PREFIX_SIZE:], file)))


_OPENERS: Final[Mapping[str, Callable[[str], Open]]] = {"AVRO": _avro, "JSON": _json_schema, "PROTOBUF": _protobuf}


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0][:REASON_MAX] or type(error).__name__


def _avro_file(data: bytes) -> tuple[Form, str]:
    """Return the first rows of an Avro file. Raises ValueError for a compressed one, which may open to any size."""
    import fastavro

    metadata: dict[str, bytes] = fastavro.schemaless_reader(_avro_input(data, len(AVRO_FILE)), _FILE_METADATA, None)
    codec = metadata.get("avro.codec", b"null")
    if codec != b"null":
        raise ValueError(f"codec {codec!r}, expected none")
    require_bounded(json.loads(metadata["avro.schema"]))
    return "avro", _json(list(islice(fastavro.reader(_avro_input(data, 0)), AVRO_FILE_ROWS_MAX)))


def _avro_input(data: bytes, start: int) -> io.BytesIO:
    """Return the part of a value that the library reads. Raises ValueError for one that is too large."""
    if len(data) > AVRO_SIZE_MAX:
        raise ValueError(f"{len(data)} bytes of Avro, expected at most {AVRO_SIZE_MAX}")
    return io.BytesIO(data[start:])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
