from typing import Any

import pytest

from spark_jobs.connect.base.api import Converter
from spark_jobs.connect.base.data import BYTES, INT32, INT64, STRING, Schema
from spark_jobs.connect.base.errors import ConfigError, DataError
from spark_jobs.connect.converters.simple import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    ShortConverter,
    StringConverter,
)

NUMBERS: list[tuple[type[Converter], Any, bytes]] = [
    (ShortConverter, -2, b"\xff\xfe"),
    (IntegerConverter, 1, b"\0\0\0\x01"),
    (LongConverter, -1, b"\xff" * 8),
    (FloatConverter, 1.5, b"\x3f\xc0\0\0"),
    (DoubleConverter, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
    (BooleanConverter, True, b"\x01"),
    (BooleanConverter, False, b"\0"),
]


@pytest.mark.parametrize(("kind", "value", "stored"), NUMBERS)
def test_a_number_has_the_bytes_of_kafkas_serializer(kind: type[Converter], value: Any, stored: bytes) -> None:
    numbers = kind()
    numbers.configure({}, is_key=True)
    assert numbers.from_data("t", None, value) == stored
    assert numbers.to_data("t", stored)[1] == value
    assert numbers.from_data("t", None, None) is None
    assert numbers.to_data("t", None)[1] is None


@pytest.mark.parametrize(("kind", "value", "stored"), NUMBERS)
def test_a_number_of_another_length_is_an_error(kind: type[Converter], value: Any, stored: bytes) -> None:
    for wrong in (b"", stored + b"\0"):
        with pytest.raises(DataError, match=f"{len(wrong)} bytes of topic t: expected {len(stored)}"):
            kind().to_data("t", wrong)


@pytest.mark.parametrize(
    ("kind", "schema", "value"),
    [
        (ShortConverter, None, 1 << 15),
        (IntegerConverter, None, "1"),
        (IntegerConverter, None, True),
        (IntegerConverter, INT64, 1),
        (BooleanConverter, None, 1),
        (BooleanConverter, INT32, True),
        (FloatConverter, None, 1e39),
        (ByteArrayConverter, STRING, b"x"),
        (ByteArrayConverter, None, "x"),
    ],
)
def test_a_value_of_another_type_is_an_error(kind: type[Converter], schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataError):
        kind().from_data("t", schema, value)


def test_a_boolean_of_another_byte_is_an_error() -> None:
    with pytest.raises(DataError, match="0x02"):
        BooleanConverter().to_data("t", b"\x02")


def test_bytes_are_passed_on() -> None:
    assert ByteArrayConverter().from_data("t", BYTES, b"\xff") == b"\xff"
    assert ByteArrayConverter().to_data("t", b"\xff")[1] == b"\xff"


def test_texts_are_in_the_encoding_of_the_setting() -> None:
    texts = StringConverter()
    texts.configure({"converter.encoding": "ISO-8859-1"}, is_key=False)
    assert texts.from_data("t", None, "é") == b"\xe9"
    assert texts.to_data("t", b"\xe9")[1] == "é"
    assert texts.from_data("t", None, "€") == b"?"


def test_bytes_that_are_no_text_are_replaced_as_in_java() -> None:
    texts = StringConverter()
    texts.configure({}, is_key=False)
    assert texts.to_data("t", b"a\xff")[1] == "a\ufffd"


@pytest.mark.parametrize("encoding", ["UTF-99", "base64"])
def test_an_unknown_encoding_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value {encoding} for configuration converter.encoding"):
        StringConverter().configure({"converter.encoding": encoding}, is_key=False)
