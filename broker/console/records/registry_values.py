"""Opens keys and values that carry the id of a schema (Confluent's wire format), or an Avro file with its schema.

Owns the formats. Must not know how records are read. The libraries `fastavro` and `protobuf` are imported when a value
needs them; without them, or without the schema, the value stays hexadecimal.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from broker.console.records.avro_limits import require_bounded
from broker.console.records.reader import Found
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
_FILE_METADATA: Final = {"type": "map", "values": "bytes"}

Open = Callable[[bytes], tuple[Form, str]]


async def with_schemas(
    console: Console, found: Sequence[Found], rows: Sequence[ShownRecord], size_max: int, *, is_pretty: bool
) -> None:
    """Replace the hexadecimal values of `rows` that a schema opens."""
    ids = set()
    for each in found:
        for data in (each.record.key, each.record.value):
            if data is not None and (schema_id := _schema_id(data)) is not None:
                ids.add(schema_id)
    schemas = {schema_id: await console.schemas.schema(schema_id) for schema_id in sorted(ids)[:50]}

    def open_all() -> None:
        readers: dict[int, Open | None] = {}
        for each, row in zip(found, rows, strict=True):
            for part, data in (("key", each.record.key), ("value", each.record.value)):
                if data is None or row[part]["form"] not in ("hex", "text"):  # type: ignore[literal-required]
                    continue
                opened = _opened(bytes(data), schemas, readers, size_max, is_pretty)
                if opened is not None:
                    row[part] = opened  # type: ignore[literal-required]

    if ids or any(_is_avro_file(each.record.value) for each in found):
        await console.services.cpu_pool.run(open_all)


def _schema_id(data: bytes) -> int | None:
    if len(data) < PREFIX_SIZE or data[0] != MAGIC:
        return None
    return int.from_bytes(bytes(data[1:PREFIX_SIZE]))


def _is_avro_file(data: bytes | None) -> bool:
    return data is not None and bytes(data[:4]) == AVRO_FILE


def _opened(
    data: bytes,
    schemas: dict[int, dict[str, Any] | None],
    readers: dict[int, Open | None],
    size_max: int,
    is_pretty: bool,
) -> ShownValue | None:
    if len(data) > OPENED_SIZE_MAX:
        return None
    try:
        if _is_avro_file(data):
            form, text = "avro", _avro_file(data)
        else:
            schema_id = _schema_id(data)
            if schema_id is None:
                return None
            if schema_id not in readers:
                readers[schema_id] = _reader(schemas.get(schema_id))
            read = readers[schema_id]
            if read is None:
                return None
            form, text = read(data)
    except Exception:
        # Bytes and schemas are untrusted, and each library raises its own exceptions for malformed ones.
        return None
    text = indented(text) if is_pretty else text
    return ShownValue(form=form, text=text[:size_max], size=len(data), is_truncated=len(text) > size_max)  # type: ignore[typeddict-item]


def _reader(registered: dict[str, Any] | None) -> Open | None:
    """Return the function that opens values of a registered schema."""
    if registered is None:
        return None
    kind, schema = registered.get("schemaType", "AVRO"), registered.get("schema", "")
    if len(schema) > SCHEMA_SIZE_MAX:
        return None
    if kind == "AVRO":
        import fastavro

        declared = json.loads(schema)
        require_bounded(declared)
        parsed = fastavro.parse_schema(declared)
        return lambda data: (
            "avro",
            _json(fastavro.schemaless_reader(_avro_input(data, PREFIX_SIZE), parsed, None)),
        )
    if kind == "JSON":
        return lambda data: ("json", data[PREFIX_SIZE:].decode())
    if kind == "PROTOBUF":
        from broker.console.records.protobuf_wire import fields_of, parse

        file = parse(schema)
        return lambda data: ("protobuf", _json(fields_of(data[PREFIX_SIZE:], file)))
    return None


def _avro_file(data: bytes) -> str:
    """Return the first rows of an Avro file. Raises ValueError for a compressed one, which may open to any size."""
    import fastavro

    metadata: dict[str, bytes] = fastavro.schemaless_reader(_avro_input(data, len(AVRO_FILE)), _FILE_METADATA, None)
    codec = metadata.get("avro.codec", b"null")
    if codec != b"null":
        raise ValueError(f"codec {codec!r}, expected none")
    require_bounded(json.loads(metadata["avro.schema"]))
    return _json(list(islice(fastavro.reader(_avro_input(data, 0)), AVRO_FILE_ROWS_MAX)))


def _avro_input(data: bytes, start: int) -> io.BytesIO:
    """Return the part of a value that the library reads. Raises ValueError for one that is too large."""
    if len(data) > AVRO_SIZE_MAX:
        raise ValueError(f"{len(data)} bytes of Avro, expected at most {AVRO_SIZE_MAX}")
    return io.BytesIO(data[start:])


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
