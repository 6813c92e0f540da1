"""The formats of files whose parts become records.

| format | record | value |
|---|---|---|
| lines | a line | its text |
| csv | a row | a Struct with a field per column |
| xml | an element of `xml.record.path` | an object: attributes, child elements, and `text` if there is more |
| json | a JSON value; each item if it is an array | the value |
| whole | the file | its bytes |

A file is read as a stream, and a record has at most `record.max.bytes`; of json that is the size of a file. A malformed
record raises DataError with the number of its line, or is counted and skipped.

XML is read without a DTD: a file with one is refused, so there are no entities that grow or read other files.

Owns the formats and their settings. Must not know where files are or what becomes of them.
"""

from __future__ import annotations

import codecs
import csv
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, Protocol
from xml.parsers import expat

from spark_jobs.connect.base.data import (
    BYTES,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    date_schema,
    struct_schema,
    timestamp_schema,
)
from spark_jobs.connect.base.definitions import Definition, Importance, Kind, Setting, at_least, invalid, one_of

_CHUNK_BYTES = 64 << 10
_XML_DEPTH_MAX = 100

Value = tuple[Schema | None, Any]


class Malformed(Protocol):
    """What is done about a malformed record."""

    def __call__(self, line: int, reason: str, *, is_fatal: bool = False) -> None:
        """Raise DataError that names the file and the line, from 1; or skip the record, unless that is fatal."""


def _check_character(name: str, value: Any) -> None:
    if len(value) != 1 or value in "\r\n":
        raise invalid(name, value, "Expected one character, or \\t")


def _check_encoding(name: str, value: Any) -> None:
    try:
        is_line_based = codecs.lookup(value).name and "\n,".encode(value) == b"\n,"
    except (LookupError, ValueError):
        is_line_based = False
    if not is_line_based:
        raise invalid(name, value, "Expected an encoding whose line ends are those of ASCII, such as utf-8 or cp1252")


def _check_types(name: str, value: Any) -> None:
    for each in value:
        column, _, kind = each.rpartition(":")
        if not column or kind not in _CSV_TYPES:
            raise invalid(name, each, f"Expected COLUMN:TYPE with a type of {', '.join(_CSV_TYPES)}")


SETTINGS: Final = Definition(
    [
        Setting(
            "format",
            Kind.STRING,
            "lines",
            Importance.HIGH,
            "What a file has: lines, csv, xml, json or whole.",
            one_of("lines", "csv", "xml", "json", "whole"),
        ),
        Setting(
            "encoding",
            Kind.STRING,
            "utf-8",
            Importance.MEDIUM,
            "The encoding of lines, csv and json; XML declares its own.",
            _check_encoding,
        ),
        Setting(
            "record.max.bytes",
            Kind.INT,
            16 << 20,
            Importance.LOW,
            "The size of a record, and of a json or whole file.",
            at_least(1),
        ),
        Setting("csv.columns", Kind.LIST, [], Importance.MEDIUM, "The columns; without them the first row has them."),
        Setting("csv.delimiter", Kind.STRING, ",", Importance.MEDIUM, "Between two values; \\t is a tab."),
        Setting("csv.quote", Kind.STRING, '"', Importance.LOW, "Around values with a delimiter.", _check_character),
        Setting(
            "csv.types",
            Kind.LIST,
            [],
            Importance.MEDIUM,
            "The types of columns, as COLUMN:TYPE; others are strings. An empty value of another type is null.",
            _check_types,
        ),
        Setting(
            "xml.record.path",
            Kind.STRING,
            None,
            Importance.MEDIUM,
            "The name of the elements that are records, or the last names of their path, as orders/order.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class Format:
    """How to read files. Made from settings by `parse_format`."""

    read: Callable[[Mapping[str, Any], BinaryIO, Malformed], Iterator[Value]]
    settings: Mapping[str, Any]

    def values(self, content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
        """Yield the values of a file, with their schemas. Raises what `malformed` raises."""
        return self.read(self.settings, content, malformed)


def parse_format(config: Mapping[str, str]) -> Format:
    """Raises ConfigError."""
    settings = SETTINGS.parse(config)
    settings["csv.delimiter"] = settings["csv.delimiter"].replace("\\t", "\t")
    _check_character("csv.delimiter", settings["csv.delimiter"])
    if settings["format"] == "xml" and not settings["xml.record.path"]:
        raise invalid("xml.record.path", settings["xml.record.path"], "Expected an element's name if format is xml")
    if len(set(settings["csv.columns"])) < len(settings["csv.columns"]):
        raise invalid("csv.columns", ",".join(settings["csv.columns"]), "Expected each column once")
    return Format(_READERS[settings["format"]], settings)


class _LineError(ValueError):
    """A line is too long or not in the encoding."""


class _Lines(Iterator[str]):
    """Yields the lines of a file, with their ends. After an error the next line can be read."""

    def __init__(self, settings: Mapping[str, Any], content: BinaryIO) -> None:
        self.number = 0
        """Of the last line, from 1."""
        self._encoding: str = settings["encoding"]
        self._bytes_max: int = settings["record.max.bytes"]
        self._content = content

    def __next__(self) -> str:
        line = self._content.readline(self._bytes_max + 1)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) > self._bytes_max and not line.endswith(b"\n"):
            while (more := self._content.readline(_CHUNK_BYTES)) and not more.endswith(b"\n"):
                pass
            raise _LineError(f"the line is longer than the {self._bytes_max} bytes of record.max.bytes")
        if self.number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            return line.decode(self._encoding)
        except UnicodeDecodeError as error:
            raise _LineError(f"the line is not {self._encoding}: {error.reason} at byte {error.start}") from None


def _read_lines(settings: Mapping[str, Any], content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
    lines = _Lines(settings, content)
    while True:
        try:
            line = next(lines)
        except StopIteration:
            return
        except _LineError as error:
            malformed(lines.number, str(error))
        else:
            yield STRING, line.removesuffix("\n").removesuffix("\r")


def _whole_number(bits: int) -> Callable[[str], int]:
    limit = 1 << (bits - 1)

    def parse(text: str) -> int:
        number = int(text)
        if not -limit <= number < limit:
            raise ValueError
        return number

    return parse


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _timestamp(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


_CSV_TYPES: Final[Mapping[str, tuple[Schema, Callable[[str], Any]]]] = {
    "string": (OPTIONAL_STRING, str),
    "int": (Schema(Type.INT32, optional=True), _whole_number(32)),
    "long": (Schema(Type.INT64, optional=True), _whole_number(64)),
    "double": (Schema(Type.FLOAT64, optional=True), float),
    "boolean": (Schema(Type.BOOLEAN, optional=True), _boolean),
    "date": (date_schema(optional=True), lambda text: dt.date.fromisoformat(text.strip())),
    "timestamp": (timestamp_schema(optional=True), _timestamp),
}
"""Schema and parser of each; a parser raises ValueError or KeyError. Times without a zone are UTC."""


class _Table:
    """Turns rows into Structs."""

    def __init__(self, columns: Sequence[str], types: Sequence[str]) -> None:
        """Raises ValueError if the columns are not those of the types."""
        kinds = {column: kind for column, _, kind in (each.rpartition(":") for each in types)}
        if len(set(columns)) < len(columns) or not all(columns):
            raise ValueError(f"the columns are {', '.join(columns)}: expected different names that are not empty")
        if unknown := [each for each in kinds if each not in columns]:
            raise ValueError(f"csv.types has {', '.join(unknown)}: the columns are {', '.join(columns)}")
        self._columns = [(column, kinds.get(column, "string")) for column in columns]
        self._schema = struct_schema({column: _CSV_TYPES[kind][0] for column, kind in self._columns})

    def value(self, row: Sequence[str]) -> Value:
        """Raises ValueError if the row does not fit."""
        if len(row) != len(self._columns):
            raise ValueError(f"the row has {len(row)} values: expected {len(self._columns)}")
        value = Struct(self._schema)
        for text, (column, kind) in zip(row, self._columns, strict=True):
            value.values[column] = self._parsed(text, column, kind)
        return self._schema, value

    def _parsed(self, text: str, column: str, kind: str) -> Any:
        if kind == "string":
            return text
        if not text.strip():
            return None
        try:
            return _CSV_TYPES[kind][1](text)
        except (ValueError, KeyError):
            raise ValueError(f"column {column} is {text!r:.100}: expected {kind}") from None


def _read_csv(settings: Mapping[str, Any], content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
    table: _Table | None = None

    def bad_row(line: int, reason: str) -> None:
        malformed(line, reason, is_fatal=table is None)  # without its header no row has a meaning

    for line, row in _rows(settings, content, bad_row):
        try:
            if table is None:
                table = _Table(settings["csv.columns"] or row, settings["csv.types"])
                if not settings["csv.columns"]:
                    continue
            yield table.value(row)
        except ValueError as error:
            bad_row(line, str(error))


def _rows(
    settings: Mapping[str, Any], content: BinaryIO, bad_row: Callable[[int, str], None]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, each with the number of its last line."""
    lines = _Lines(settings, content)
    form: dict[str, Any] = {"delimiter": settings["csv.delimiter"], "quotechar": settings["csv.quote"], "strict": True}
    reader = csv.reader(lines, **form)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except (csv.Error, _LineError) as error:
            bad_row(lines.number, str(error))
            reader = csv.reader(lines, **form)  # the next line begins a row
        else:
            if row:
                yield lines.number, row


class _XmlRecords:
    """Collects the elements of a path while a file is parsed."""

    def __init__(self, path: str, bytes_max: int) -> None:
        self.values: list[Any] = []
        """The complete records; the reader takes them."""
        self._path = path.strip("/").split("/")
        self._bytes_max = bytes_max
        self._names: list[str] = []
        self._open: list[tuple[dict[str, Any], list[str]]] = []
        """Fields and texts of the elements from a record's down to the present one."""
        self._start = 0
        self._read = 0
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self.parser.StartElementHandler = self._start_element
        self.parser.EndElementHandler = self._end_element
        self.parser.CharacterDataHandler = self._text

    def parse(self, content: bytes, *, is_last: bool) -> None:
        """Raises ValueError for what is malformed."""
        try:
            self.parser.Parse(content, is_last)
        except expat.ExpatError as error:
            raise ValueError(f"malformed XML: {expat.ErrorString(error.code)}") from None
        self._read += len(content)
        if self._open or not is_last:
            self._check_size(self._read - (self._start if self._open else self.parser.CurrentByteIndex))

    def _refuse_doctype(self, *_declaration: object) -> None:
        raise ValueError("the file has a DTD: expected XML without DOCTYPE")

    def _start_element(self, name: str, attributes: Mapping[str, str]) -> None:
        self._names.append(_local(name))
        if len(self._names) > _XML_DEPTH_MAX:
            raise ValueError(f"elements are nested more than {_XML_DEPTH_MAX} deep")
        if self._open or self._names[-len(self._path) :] == self._path:
            if not self._open:
                self._start = self.parser.CurrentByteIndex
            self._open.append(({_local(key): value for key, value in attributes.items()}, []))

    def _text(self, text: str) -> None:
        if self._open:
            self._open[-1][1].append(text)

    def _end_element(self, _name: str) -> None:
        name = self._names.pop()
        if not self._open:
            return
        fields, texts = self._open.pop()
        text = "".join(texts)
        if self._open:
            _add(self._open[-1][0], name, _element(fields, text))
        else:
            self._check_size(self.parser.CurrentByteIndex - self._start)
            value = _element(fields, text)
            self.values.append(value if isinstance(value, dict) else {"text": value} if value else {})

    def _check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise ValueError(f"the element is longer than the {self._bytes_max} bytes of record.max.bytes")


def _local(name: str) -> str:
    """Return a name without its prefix."""
    return name.rpartition(":")[2]


def _element(fields: dict[str, Any], text: str) -> Any:
    """Return the value of an element: its text if it has nothing else, or an object."""
    if not fields:
        return text
    if text.strip():
        _add(fields, "text", text.strip())
    return fields


def _add(fields: dict[str, Any], name: str, value: Any) -> None:
    """Add a field; several of one name become a list."""
    if name not in fields:
        fields[name] = value
    elif isinstance(fields[name], list):
        fields[name].append(value)
    else:
        fields[name] = [fields[name], value]


def _read_xml(settings: Mapping[str, Any], content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
    records = _XmlRecords(settings["xml.record.path"], settings["record.max.bytes"])
    while True:
        chunk = content.read(_CHUNK_BYTES)
        problem: str | None = None
        try:
            records.parse(chunk, is_last=not chunk)
        except ValueError as error:
            problem = str(error)
        for value in records.values:
            yield None, value
        records.values.clear()
        if problem is not None:
            malformed(records.parser.CurrentLineNumber, problem)
            return  # behind an error nothing is an element
        if not chunk:
            return


def _limited(settings: Mapping[str, Any], content: BinaryIO) -> bytes:
    """Return a whole file. Raises ValueError if it is too long."""
    found = content.read(settings["record.max.bytes"] + 1)
    if len(found) > settings["record.max.bytes"]:
        raise ValueError(f"the file is longer than the {settings['record.max.bytes']} bytes of record.max.bytes")
    return found


_DECODER = json.JSONDecoder()
_JSON_SPACE = " \t\r\n"


def _read_json(settings: Mapping[str, Any], content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
    text, position = "", 0
    try:
        text = _limited(settings, content).removeprefix(codecs.BOM_UTF8).decode(settings["encoding"])
        while True:
            while position < len(text) and text[position] in _JSON_SPACE:
                position += 1
            if position == len(text):
                return
            value, position = _DECODER.raw_decode(text, position)
            for item in value if isinstance(value, list) else [value]:
                yield None, item
    except json.JSONDecodeError as error:
        malformed(error.lineno, error.msg)
    except (ValueError, RecursionError) as error:
        malformed(text.count("\n", 0, position) + 1, str(error))


def _read_whole(settings: Mapping[str, Any], content: BinaryIO, malformed: Malformed) -> Iterator[Value]:
    try:
        yield BYTES, _limited(settings, content)
    except ValueError as error:
        malformed(1, str(error))


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], BinaryIO, Malformed], Iterator[Value]]]] = {
    "lines": _read_lines,
    "csv": _read_csv,
    "xml": _read_xml,
    "json": _read_json,
    "whole": _read_whole,
}
