"""Conversion of lines to records."""

import pytest

from tools.base.command_line import UsageError
from tools.base.line_reader import LineError, LineReader, LineRecord

KEY = {"parse.key": "true"}
HEADERS = {"parse.headers": "true"}
BOTH = {**KEY, **HEADERS}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, b"a line\twith a tab", LineRecord(None, b"a line\twith a tab", [])),
        ({}, b"", LineRecord(None, b"", [])),
        ({}, b"\xff\x00", LineRecord(None, b"\xff\x00", [])),
        (KEY, b"key\tvalue", LineRecord(b"key", b"value", [])),
        (KEY, b"key\tvalue\tmore", LineRecord(b"key", b"value\tmore", [])),
        (KEY, b"key\t", LineRecord(b"key", b"", [])),
        (KEY, b"\tvalue", LineRecord(b"", b"value", [])),
        ({**KEY, "key.separator": "=>"}, b"key=>value", LineRecord(b"key", b"value", [])),
        ({**KEY, "ignore.error": "true"}, b"no separator", LineRecord(None, b"no separator", [])),
        (HEADERS, b"h1:v1,h2:v2\tvalue", LineRecord(None, b"value", [("h1", b"v1"), ("h2", b"v2")])),
        (HEADERS, b"h1:a:b\tvalue", LineRecord(None, b"value", [("h1", b"a:b")])),
        (HEADERS, b"\tvalue", LineRecord(None, b"value", [])),
        (BOTH, b"h:1\tkey\tvalue", LineRecord(b"key", b"value", [("h", b"1")])),
        ({**HEADERS, "ignore.error": "true"}, b"h\tvalue", LineRecord(None, b"value", [("h", None)])),
        ({**KEY, "null.marker": "NULL"}, b"key\tNULL", LineRecord(b"key", None, [])),
        ({**KEY, "null.marker": "NULL"}, b"NULL\tNULL", LineRecord(None, None, [])),
        ({**BOTH, "null.marker": "NULL"}, b"NULL\tkey\tvalue", LineRecord(b"key", b"value", [])),
        ({**BOTH, "null.marker": "NULL"}, b"h:NULL\tkey\tvalue", LineRecord(b"key", b"value", [("h", None)])),
        (
            {
                **BOTH,
                "headers.delimiter": "|",
                "headers.separator": ";",
                "headers.key.separator": "=",
                "key.separator": "#",
            },
            b"a=1;b=2|k#v",
            LineRecord(b"k", b"v", [("a", b"1"), ("b", b"2")]),
        ),
    ],
)
def test_lines_are_parsed(properties: dict[str, str], line: bytes, record: LineRecord) -> None:
    assert LineReader(properties).read(line) == record


@pytest.mark.parametrize(
    ("properties", "line", "text"),
    [
        (KEY, b"no separator", "No key separator found on line number 2: 'no separator'"),
        (HEADERS, b"no delimiter", "No headers delimiter found on line number 2: 'no delimiter'"),
        (BOTH, b"h:1\tno key", "No key separator found on line number 2: 'h:1\tno key'"),
        (HEADERS, b"h\tvalue", "No header key separator found in pair 'h' on line number 2"),
        (
            {**HEADERS, "null.marker": "NULL"},
            b"NULL:1\tvalue",
            "Header keys should not be equal to the null marker 'NULL'",
        ),
    ],
)
def test_lines_with_missing_parts_are_rejected(properties: dict[str, str], line: bytes, text: str) -> None:
    reader = LineReader(properties)
    reader.read(b"h:1\tkey\tvalue")
    with pytest.raises(LineError) as failure:
        reader.read(line)
    assert str(failure.value).startswith(text)


@pytest.mark.parametrize(
    "properties",
    [
        {"null.marker": "\t"},
        {"null.marker": ":"},
        {"key.separator": ""},
        {**HEADERS, "headers.separator": "\t"},
        {**HEADERS, "headers.separator": ":"},
        {**HEADERS, "headers.key.separator": "\t"},
    ],
)
def test_equal_separators_are_rejected(properties: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        LineReader(properties)
