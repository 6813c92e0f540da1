"""Each format splits a file into its records, and names the line of what is malformed."""

import datetime as dt
import io
from collections.abc import Mapping
from typing import Any

import pytest

from spark_jobs.connect.base.data import BYTES, Struct, validate
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.connectors.file_formats import parse_format


class Skipping:
    """Skips malformed records, and remembers them."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []

    def __call__(self, line: int, reason: str, *, is_fatal: bool = False) -> None:
        self.found.append((line, reason))
        if is_fatal:
            raise DataError(reason)


def read(content: bytes, settings: Mapping[str, str], skipping: Skipping | None = None) -> list[Any]:
    """Return the values of all records; none may be malformed, unless it is skipped."""
    handler = skipping or Skipping()
    found = list(parse_format(settings).values(io.BytesIO(content), handler))
    assert skipping is not None or not handler.found
    for schema, value in found:
        validate(schema, value)
    return [dict(value.items()) if isinstance(value, Struct) else value for _, value in found]


XML = {"format": "xml", "xml.record.path": "order"}


@pytest.mark.parametrize(
    ("settings", "content", "values"),
    [
        ({}, b"one\r\n\nthree", ["one", "", "three"]),
        ({}, b"\xef\xbb\xbfone\n", ["one"]),
        ({"encoding": "cp1252"}, b"gr\xfc\xdfe\n", ["grüße"]),
        ({"format": "csv"}, b'a,b\n1,"x, ""y""\nz"\n\n,\n', [{"a": "1", "b": 'x, "y"\nz'}, {"a": "", "b": ""}]),
        ({"format": "csv", "csv.columns": "a,b", "csv.delimiter": "\\t"}, b"1\t2\n", [{"a": "1", "b": "2"}]),
        ({"format": "csv", "csv.delimiter": ";", "csv.quote": "'"}, b"a;b\n';';2\n", [{"a": ";", "b": "2"}]),
        (
            {"format": "csv", "csv.types": "i:int,l:long,d:double,b:boolean,day:date,at:timestamp"},
            b"i,l,d,b,day,at,s\n1,-5000000000,1.5,True,2024-02-29,2024-02-29T12:00:00+02:00,x\n,,, ,,,\n",
            [
                {
                    "i": 1,
                    "l": -5_000_000_000,
                    "d": 1.5,
                    "b": True,
                    "day": dt.date(2024, 2, 29),
                    "at": dt.datetime(2024, 2, 29, 10, tzinfo=dt.UTC),
                    "s": "x",
                },
                {"i": None, "l": None, "d": None, "b": None, "day": None, "at": None, "s": ""},
            ],
        ),
        ({"format": "json"}, b'[{"a": 1}, 2]', [{"a": 1}, 2]),
        ({"format": "json"}, b'{"a": 1}\n{"a": 2}\n\n3', [{"a": 1}, {"a": 2}, 3]),
        ({"format": "json"}, b" \n", []),
        ({"format": "whole"}, b"\0\xff", [b"\0\xff"]),
        ({"format": "whole"}, b"", [b""]),
        (
            XML,
            b'<orders><order id="1"><item>a</item><item>b</item></order></orders>',
            [{"id": "1", "item": ["a", "b"]}],
        ),
        (
            XML,
            b'<order id="1"><to n="x">text</to><empty/></order>',
            [{"id": "1", "to": {"n": "x", "text": "text"}, "empty": ""}],
        ),
        (XML, b"<n:orders xmlns:n='u'><n:order> plain </n:order><n:order/></n:orders>", [{"text": " plain "}, {}]),
        (XML, b"<a><order><order>1</order></order></a>", [{"order": "1"}]),
        (
            {"format": "xml", "xml.record.path": "orders/order"},
            b"<a><order>no</order><orders><order><n>&lt;&#228;</n></order></orders></a>",
            [{"n": "<ä"}],
        ),
    ],
)
def test_each_record_is_a_value(settings: dict[str, str], content: bytes, values: list[Any]) -> None:
    assert read(content, settings) == values


def test_a_whole_file_is_of_bytes() -> None:
    ((schema, _),) = parse_format({"format": "whole"}).values(io.BytesIO(b"a"), Skipping())
    assert schema == BYTES


@pytest.mark.parametrize(
    ("settings", "content", "values", "malformed"),
    [
        ({}, b"a\n\xff\nb\n", ["a", "b"], [(2, "not utf-8")]),
        (
            {"record.max.bytes": "3"},
            b"abc\nabcd\n" + b"x" * 100_000 + b"\nb\n",
            ["abc", "b"],
            [(2, "3 bytes"), (3, "3 b")],
        ),
        (
            {"format": "csv", "csv.columns": "a,b"},
            b"1\n2,3\n4,5,6\n",
            [{"a": "2", "b": "3"}],
            [(1, "1 values"), (3, "3 v")],
        ),
        (
            {"format": "csv", "csv.types": "a:int"},
            b"a\nx\n99999999999\n2\n",
            [{"a": 2}],
            [(2, "a is 'x': expected int"), (3, "expected int")],
        ),
        ({"format": "csv"}, b'a\n"b"c\nd\n', [{"a": "d"}], [(2, "expected after")]),
        ({"format": "csv"}, b"a\n\xff\nd\n", [{"a": "d"}], [(2, "not utf-8")]),
        ({"format": "json"}, b"[1]\n{bad}", [1], [(2, "property name")]),
        ({"format": "json"}, b"1\n" + b"[" * 100_000, [1], [(2, "recursion")]),
        ({"format": "json", "record.max.bytes": "3"}, b"[1, 2]", [], [(1, "3 bytes")]),
        ({"format": "whole", "record.max.bytes": "3"}, b"abcd", [], [(1, "3 bytes")]),
        (XML, b"<a><order>1</order>\n<order></a>", [{"text": "1"}], [(2, "mismatched tag")]),
        (XML, b"<a><order>1</order>", [{"text": "1"}], [(1, "no element found")]),
        (XML, b"<a>" * 200, [], [(1, "more than 100 deep")]),
        (
            XML | {"record.max.bytes": "100"},
            b"<a><order>1</order>\n<order>" + b"x" * 200 + b"</order></a>",
            [{"text": "1"}],
            [(2, "100 bytes")],
        ),
        (XML | {"record.max.bytes": "100"}, b"<a>\n<order a='" + b"x" * 200_000, [], [(2, "100 bytes")]),
        (XML | {"record.max.bytes": "100"}, b"<a><!--" + b"x" * 200_000, [], [(1, "100 bytes")]),
        (XML, b"<!DOCTYPE a [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><a><order>&e;</order></a>", [], [(1, "DTD")]),
    ],
)
def test_what_is_malformed_is_reported_with_its_line_and_the_rest_is_read(
    settings: dict[str, str], content: bytes, values: list[Any], malformed: list[tuple[int, str]]
) -> None:
    skipping = Skipping()
    assert read(content, settings, skipping) == values
    assert [line for line, _ in skipping.found] == [line for line, _ in malformed]
    for (_, reason), (_, part) in zip(skipping.found, malformed, strict=True):
        assert part in reason


@pytest.mark.parametrize(
    ("settings", "content", "reason"),
    [
        ({}, b"a,a\n1,2\n", "a, a: expected different names"),
        ({}, b"a,\n1,2\n", "expected different names that are not empty"),
        ({}, b"\xff\n1\n", "not utf-8"),
        ({"csv.types": "b:int"}, b"a\n1\n", "csv.types has b: the columns are a"),
    ],
)
def test_a_csv_file_with_a_malformed_header_cannot_be_skipped(
    settings: dict[str, str], content: bytes, reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        read(content, {"format": "csv", **settings}, Skipping())


def test_an_unclosed_quote_takes_bounded_memory() -> None:
    skipping = Skipping()
    read(b'a\n"' + b"x" * 100 + b"\n" + b"line\n" * 100_000, {"format": "csv"}, skipping)
    assert "field larger than field limit" in skipping.found[0][1]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("format", "parquet"),
        ("encoding", "utf-16"),
        ("encoding", "none"),
        ("csv.delimiter", ";;"),
        ("csv.quote", ""),
        ("csv.types", "a:money"),
        ("csv.types", "int"),
        ("csv.columns", "a,b,a"),
        ("record.max.bytes", "0"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, value: str) -> None:
    with pytest.raises(ConfigError, match=setting.replace(".", r"\.")):
        parse_format({setting: value})


def test_xml_needs_the_name_of_its_records() -> None:
    with pytest.raises(ConfigError, match=r"xml\.record\.path"):
        parse_format({"format": "xml"})
