"""Parses lines of text to records: `headers<TAB>key<TAB>value`, where headers and key are optional.

Works on bytes, so that the input is stored unchanged. Must not know where lines come from or records go.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tools.base.command_line import UsageError

Header = tuple[str, bytes | None]


class LineRecord(NamedTuple):
    """The record of one line."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


class LineError(Exception):
    """A line with a missing part. The text contains the line number and the line."""


class LineReader:
    """Splits lines according to the reader properties of the console producer."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Raises UsageError for separators that are equal."""
        self._parse_key = _is_true(properties, "parse.key")
        self._parse_headers = _is_true(properties, "parse.headers")
        self._ignore_error = _is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t").encode()
        self._headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self._headers_separator = properties.get("headers.separator", ",").encode()
        self._headers_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        self._line_number = 0
        self._check_separators()

    def read(self, line: bytes) -> LineRecord:
        """Return the record of the next line. Raises LineError."""
        self._line_number += 1
        position = 0
        headers = self._part(self._parse_headers, line, position, self._headers_delimiter, "headers delimiter")
        if headers is not None:
            position += len(headers) + len(self._headers_delimiter)
        key = self._part(self._parse_key, line, position, self._key_separator, "key separator")
        if key is not None:
            position += len(key) + len(self._key_separator)
        return LineRecord(self._nullable(key), self._nullable(line[position:]), self._split_headers(headers))

    def _part(self, is_wanted: bool, line: bytes, position: int, separator: bytes, name: str) -> bytes | None:
        if not is_wanted:
            return None
        end = line.find(separator, position)
        if end >= 0:
            return line[position:end]
        if self._ignore_error:
            return None
        raise LineError(f"No {name} found on line number {self._line_number}: '{line.decode(errors='replace')}'")

    def _split_headers(self, headers: bytes | None) -> list[Header]:
        if not headers or headers == self._null_marker:
            return []
        return [self._header(pair) for pair in headers.split(self._headers_separator)]

    def _header(self, pair: bytes) -> Header:
        key, separator, value = pair.partition(self._headers_key_separator)
        shown = pair.decode(errors="replace")
        if not separator:
            if self._ignore_error:
                return shown, None
            raise LineError(f"No header key separator found in pair '{shown}' on line number {self._line_number}")
        if key == self._null_marker:
            raise LineError(
                f"Header keys should not be equal to the null marker '{key.decode()}' as they can't be null"
                f", found on line number {self._line_number}"
            )
        return key.decode(errors="replace"), self._nullable(value)

    def _nullable(self, part: bytes | None) -> bytes | None:
        return None if part == self._null_marker else part

    def _check_separators(self) -> None:
        separators = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._headers_key_separator,
        }
        named = [*separators.items(), ("key.separator", self._key_separator)]
        if self._null_marker is not None:
            for name, separator in named:
                if separator == self._null_marker:
                    raise UsageError(f"null.marker and {name} may not be equal")
        if not all(separator for _, separator in named):
            raise UsageError("Separators may not be empty")
        pairs = [(one, other) for one in separators for other in separators if one < other]
        for one, other in pairs:
            if self._parse_headers and separators[one] == separators[other]:
                raise UsageError(f"{one} and {other} may not be equal")


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "false").strip().lower() == "true"
