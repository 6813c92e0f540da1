"""Keys, values and headers of records as JSON for a browser: text, JSON or hexadecimal, cut at a limit.

Owns how bytes become text. Pure. Must not know where records come from. Nothing here is markup: the page sets it as
text, so a value that is a script stays a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Literal, TypedDict

from protocol.records.batch import BatchHeader, Record, TimestampType

VALUE_SIZE_MAX: Final = 2_000
"""Bytes of a key, value or header shown in a list of records."""
WHOLE_VALUE_SIZE_MAX: Final = 1 << 20
"""Bytes of a key, value or header shown for a single record."""
HEADERS_MAX: Final = 50
HEADERS_SIZE_MAX: Final = 10_000
"""Characters of all headers of a record in a list; for a single record as many as for its value."""
INDENT_LEVELS_MAX: Final = 16

Form = Literal["null", "json", "text", "hex", "avro", "protobuf"]


class _Value(TypedDict):
    form: Form
    text: str
    size: int
    is_truncated: bool


class ShownValue(_Value, total=False):
    """Bytes of a record as text. `size` counts all bytes, also those that are not shown.

    `schema` names the schema of a value that has one, and `problem` says why it did not open the value.
    """

    schema: str
    problem: str


class ShownHeader(TypedDict):
    """One header of a record."""

    key: str
    value: ShownValue


class ShownRecord(TypedDict):
    """One record. Offsets and timestamps are decimal strings, because numbers of JavaScript end at 2^53.

    `header_count` counts all headers, also those that are not shown.
    """

    partition: int
    offset: str
    timestamp_ms: str
    timestamp_type: Literal["CreateTime", "LogAppendTime"]
    key: ShownValue
    value: ShownValue
    headers: list[ShownHeader]
    header_count: int
    codec: str
    producer_id: str
    is_transactional: bool


def shown_value(data: bytes | None, size_max: int = VALUE_SIZE_MAX, *, is_pretty: bool = False) -> ShownValue:
    """Return bytes as text: JSON objects and arrays as such, other UTF-8 as text, everything else as hexadecimal."""
    if data is None:
        return ShownValue(form="null", text="", size=0, is_truncated=False)
    is_truncated = len(data) > size_max
    shown = bytes(data[:size_max])
    try:
        text = shown.decode()
    except UnicodeDecodeError as error:
        # A character may be cut in two at the limit.
        if not (is_truncated and error.start >= size_max - 3):
            return _hexadecimal(data, size_max)
        text = shown[: error.start].decode()
    if not _is_printable(text):
        return _hexadecimal(data, size_max)
    form: Form = "text"
    if text[:1] in ("{", "[") and not is_truncated and _is_json(text):
        form = "json"
        text = indented(text) if is_pretty else text
    return ShownValue(form=form, text=text, size=len(data), is_truncated=is_truncated)


def hexadecimal(data: bytes | None, size_max: int = VALUE_SIZE_MAX) -> ShownValue:
    """Return bytes as hexadecimal digits."""
    return shown_value(None) if data is None else _hexadecimal(data, size_max)


def shown_record(
    partition: int,
    record: Record,
    header: BatchHeader,
    size_max: int = VALUE_SIZE_MAX,
    *,
    is_pretty: bool = False,
    is_hexadecimal: bool = False,
) -> ShownRecord:
    """Return one record for a browser."""

    def shown(data: bytes | None, data_size_max: int = size_max) -> ShownValue:
        if is_hexadecimal:
            return hexadecimal(data, data_size_max)
        return shown_value(data, data_size_max, is_pretty=is_pretty)

    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return ShownRecord(
        partition=partition,
        offset=str(record.offset),
        timestamp_ms=str(record.timestamp),
        timestamp_type="LogAppendTime" if is_append_time else "CreateTime",
        key=shown(record.key),
        value=shown(record.value),
        headers=_shown_headers(record, shown, size_max),
        header_count=len(record.headers),
        codec=header.compression.name.lower(),
        producer_id=str(header.producer_id),
        is_transactional=header.is_transactional,
    )


def _shown_headers(
    record: Record, shown: Callable[[bytes | None, int], ShownValue], size_max: int
) -> list[ShownHeader]:
    """Return the first headers. They share one limit; the last of them may be cut by it."""
    left = max(HEADERS_SIZE_MAX, size_max)
    headers: list[ShownHeader] = []
    for key, value in record.headers[:HEADERS_MAX]:
        if left <= 0:
            break
        name = key.encode(errors="replace").decode()[: min(size_max, left)]
        left -= len(name)
        header = ShownHeader(key=name, value=shown(value, min(size_max, left)))
        left -= len(header["value"]["text"])
        headers.append(header)
    return headers


def indented(text: str) -> str:
    """Return valid JSON with line breaks. Numbers and strings stay as they are, so that no digit is lost."""
    out: list[str] = []
    depth = position = 0
    size = len(text)
    while position < size:
        character = text[position]
        if character == '"':
            end = _string_end(text, position)
            out.append(text[position:end])
            position = end
            continue
        if character in "{[":
            closing = _skip_blanks(text, position + 1)
            if text[closing : closing + 1] in ("}", "]"):
                out.append(character + text[closing])
                position = closing + 1
                continue
            depth += 1
            out.append(character + _line(depth))
        elif character in "}]":
            depth -= 1
            out.append(_line(depth) + character)
        elif character == ",":
            out.append("," + _line(depth))
        elif character == ":":
            out.append(": ")
        elif not character.isspace():
            out.append(character)
        position += 1
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + "  " * min(depth, INDENT_LEVELS_MAX)


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _string_end(text: str, start: int) -> int:
    position = start + 1
    while text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


def _hexadecimal(data: bytes, size_max: int) -> ShownValue:
    shown = bytes(data[: size_max // 2])
    return ShownValue(form="hex", text=shown.hex(" "), size=len(data), is_truncated=len(shown) < len(data))


def _is_printable(text: str) -> bool:
    return not any(ord(character) < 0x20 and character not in "\t\n\r" for character in text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
