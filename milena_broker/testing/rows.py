"""What tests produce: rows in the forms that are easy to write, and files of them.

Owns these forms. Must not know brokers.
"""

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from milena_broker.testing import arguments
from milena_broker.testing.arguments import shown

__tracebackhide__ = True

ROWS_AT_ONCE = 10_000
SIZE_AT_ONCE = 8 << 20
DATA_SIZE_MAX = 64 << 20
FIELDS = ("key", "value", "headers", "partition", "timestamp_ms")
"""The fields of a record. A mapping with the key `value` is a record, and may have no others than these."""


def messages_of(rows: object) -> Iterator[dict[str, Any]]:
    """Yield rows as the host expects them. Raises TypeError and ValueError with the row that is wrong."""
    if isinstance(rows, str | bytes | bytearray | memoryview | Mapping) or not isinstance(rows, Iterable):
        raise TypeError(f"rows is {shown(rows)}: expected a list, or another iterable, of rows")
    return (_message_of(row, f"row {number}") for number, row in enumerate(rows))


def messages_of_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file: one JSON value a line, or for `.csv` one row a line below a line of names.

    A CSV file with the column `value` has records; its other columns may be key, partition and timestamp_ms. Any other
    CSV file has values, each a JSON object of its columns. Raises OSError, and ValueError with the line.
    """
    yield from _messages_of_csv(path) if path.suffix == ".csv" else _messages_of_lines(path)


def batched(messages: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield messages in lists that a command can carry."""
    batch: list[dict[str, Any]] = []
    size = 0
    for message in messages:
        batch.append(message)
        size += len(message["key"] or "") + len(message["value"] or "")
        if len(batch) == ROWS_AT_ONCE or size >= SIZE_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _message_of(row: object, where: str) -> dict[str, Any]:
    """Return one row as the host expects it.

    A row is a value, a tuple of key and value, or a mapping of the fields of a record; of these only `value` is
    required. Keys and values are bytes, text, None, or anything else that JSON can express.
    """
    fields: Mapping[Any, Any]
    if isinstance(row, Mapping) and "value" in row:
        fields = row
        if unknown := [name for name in row if name not in FIELDS]:
            raise TypeError(
                f"{where} has 'value' and {shown(unknown[0])}: expected only {', '.join(FIELDS)}; "
                "a JSON object with the field 'value' is written as {'value': {'value': ...}}"
            )
    elif isinstance(row, tuple):
        if len(row) != 2:
            raise TypeError(f"{where} is {shown(row)}: expected a tuple of key and value")
        fields = {"key": row[0], "value": row[1]}
    else:
        fields = {"value": row}
    return {
        "key": _encoded(f"key of {where}", fields.get("key")),
        "value": _encoded(f"value of {where}", fields["value"]),
        "headers": [
            (name, _encoded(f"header {name!r} of {where}", value))
            for name, value in _headers_of(fields.get("headers"), where)
        ],
        "partition": arguments.optional_integer(f"partition of {where}", fields.get("partition"), 0),
        "timestamp_ms": arguments.optional_integer(
            f"timestamp_ms of {where}", fields.get("timestamp_ms"), 0, arguments.INT64_MAX
        ),
    }


def _headers_of(headers: object, where: str) -> Iterator[tuple[str, object]]:
    if headers is None:
        return
    if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
        raise TypeError(f"headers of {where} is {shown(headers)}: expected a mapping, or pairs of name and value")
    for pair in headers.items() if isinstance(headers, Mapping) else headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a header of {where} is {shown(pair)}: expected a pair of name and value")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a header of {where} is {shown(name)}: expected a text")
        yield name, value


def _messages_of_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}:{number}"
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{where}: expected one JSON value a line: {error}") from error
                yield _message_of_line(row, where)


def _messages_of_csv(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise ValueError(f"{where}: {row} has not as many columns as the first line")
            yield _message_of_line(_record_of_csv(row, where) if "value" in row else row, where)


def _message_of_line(row: object, where: str) -> dict[str, Any]:
    try:
        return _message_of(row, "the row")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _record_of_csv(row: Mapping[str, str], where: str) -> dict[str, Any]:
    record: dict[str, Any] = dict(row)
    for name in ("partition", "timestamp_ms"):
        if name in record:
            try:
                record[name] = int(record[name]) if record[name] else None
            except ValueError:
                raise ValueError(f"{where}: {name} is {shown(record[name])}: expected an integer, or nothing") from None
    if not record.get("key", ""):
        record.pop("key", None)
    return record


def _encoded(name: str, data: object) -> str | None:
    if data is None:
        return None
    if isinstance(data, bytes | bytearray | memoryview):
        plain = bytes(data)
    else:
        try:
            plain = (data if isinstance(data, str) else json.dumps(data, allow_nan=False)).encode()
        except (TypeError, ValueError, RecursionError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"{name} is {shown(data)}: expected bytes, text, or what JSON can express: {error}") from None
    if len(plain) > DATA_SIZE_MAX:
        raise ValueError(f"{name} has {len(plain)} bytes: expected at most {DATA_SIZE_MAX}")
    return base64.b64encode(plain).decode()
