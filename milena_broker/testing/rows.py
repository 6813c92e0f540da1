"""What tests produce: rows in the forms that are easy to write, and files of them.

Owns these forms. Must not know brokers.
"""

import base64
import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FIELDS = {"key", "value", "headers", "partition", "timestamp_ms"}
"""The fields of a record. A mapping is a record if it has `value` and no other names than these."""


def message_of(row: object) -> dict[str, Any]:
    """Return one row as the host expects it.

    A row is a value, a tuple of key and value, or a mapping of the fields of a record; of these only `value` is
    required. Keys and values are bytes, text, None, or anything else that JSON can express. Raises TypeError.
    """
    fields: Mapping[str, Any]
    if isinstance(row, Mapping) and "value" in row and row.keys() <= FIELDS:
        fields = row
    elif isinstance(row, tuple) and len(row) == 2:
        fields = {"key": row[0], "value": row[1]}
    else:
        fields = {"value": row}
    headers = fields.get("headers") or ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return {
        "key": _encoded(fields.get("key")),
        "value": _encoded(fields["value"]),
        "headers": [(name, _encoded(value)) for name, value in pairs],
        "partition": fields.get("partition"),
        "timestamp_ms": fields.get("timestamp_ms"),
    }


def rows_of_file(path: str | Path) -> Iterator[object]:
    """Yield the rows of a file: one JSON value a line, or for `.csv` one row a line below a line of names.

    A CSV file with the column `value` has records; its other columns may be key, partition and timestamp_ms. Any other
    CSV file has values, each a JSON object of its columns. Raises OSError, and ValueError with the line.
    """
    path = Path(path)
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, strict=True):
                if None in row or None in row.values():
                    raise ValueError(f"{path}: {row} has not as many columns as the first line")
                yield _record_of_csv(row) if "value" in row and row.keys() <= FIELDS else row
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number}: expected one JSON value a line: {error}") from error


def _record_of_csv(row: Mapping[str, str]) -> dict[str, Any]:
    record: dict[str, Any] = dict(row)
    for name in ("partition", "timestamp_ms"):
        if name in record:
            record[name] = int(record[name]) if record[name] else None
    if not record.get("key", ""):
        record.pop("key", None)
    return record


def batches_of(rows: Iterable[object], size: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the messages of rows in lists of at most `size`."""
    gathered: list[dict[str, Any]] = []
    for row in rows:
        gathered.append(message_of(row))
        if len(gathered) == size:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _encoded(data: object) -> str | None:
    if data is None:
        return None
    if isinstance(data, bytes | bytearray | memoryview):
        plain = bytes(data)
    else:
        plain = (data if isinstance(data, str) else json.dumps(data)).encode()
    return base64.b64encode(plain).decode()
