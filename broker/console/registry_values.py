"""Opens keys and values that carry the id of a schema (Confluent's wire format), or an Avro file with its schema.

Owns the formats. Must not know how records are read. The libraries `fastavro` and `protobuf` are imported when a value
needs them; without them, or without the schema, the value stays hexadecimal.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from broker.console.record_reader import Found
from broker.console.record_values import Form, ShownRecord, ShownValue, indented

if TYPE_CHECKING:
    from broker.console.console import Console

MAGIC: Final = 0
PREFIX_SIZE: Final = 5
AVRO_FILE: Final = b"Obj\x01"
OPENED_SIZE_MAX: Final = 1 << 20

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
        # Bytes and schemas are of strangers, and each library has exceptions of its own for what they may contain.
        return None
    text = indented(text) if is_pretty else text
    return ShownValue(form=form, text=text[:size_max], size=len(data), is_truncated=len(text) > size_max)  # type: ignore[typeddict-item]


def _reader(registered: dict[str, Any] | None) -> Open | None:
    """Return the function that opens values of a registered schema."""
    if registered is None:
        return None
    kind, schema = registered.get("schemaType", "AVRO"), registered.get("schema", "")
    if kind == "AVRO":
        import fastavro

        parsed = fastavro.parse_schema(json.loads(schema))
        return lambda data: (
            "avro",
            _json(fastavro.schemaless_reader(io.BytesIO(data[PREFIX_SIZE:]), parsed, None)),
        )
    if kind == "JSON":
        return lambda data: ("json", data[PREFIX_SIZE:].decode())
    if kind == "PROTOBUF":
        from broker.console.protobuf_wire import fields_of

        return lambda data: ("protobuf", _json(fields_of(data[PREFIX_SIZE:], schema)))
    return None


def _avro_file(data: bytes) -> str:
    import fastavro

    rows = []
    for row in fastavro.reader(io.BytesIO(data)):
        rows.append(row)
        if len(rows) >= 100:
            break
    return _json(rows)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
