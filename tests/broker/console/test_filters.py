"""The language of record filters: what passes, and what is no filter."""

from __future__ import annotations

import json

import pytest

from broker.console.records.filters import FilterError, parse_filter
from protocol.records.batch import Record

RECORD = Record(
    offset=7,
    timestamp=1_700_000_000_000,
    key=b"user-1",
    value=b'{"n": 5, "text": "Hello <b>", "list": [{"x": 1.5}], "no": null, "yes": true, "big": 12345678901234567890}',
    headers=[("a", b"1"), ("a", b"2"), ("none", None)],
)


def no_schema(_: bytes) -> None:
    """Open no value."""


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("hello", True),
        ('"<b>"', True),
        ("goodbye", False),
        ("not goodbye", True),
        ("key = user-1", True),
        ("key != user-1", False),
        ("key starts user", True),
        ("value contains HELLO", False),
        ("value.n = 5", True),
        ("value.n > 4.5 and value.n < 6", True),
        ('value.n = "5"', True),
        ("value.list.0.x >= 1.5", True),
        ("value.list.1.x >= 0", False),
        ("value.list.-1.x >= 0", False),
        ("value.no = null", True),
        ("value.yes = true", True),
        ("value.missing = 1", False),
        ("value.missing != 1", True),
        ("value.big = 12345678901234567890", True),
        ("header.a = 2", True),
        ("header.none = 1", False),
        ("offset = 7 and partition = 3", True),
        ("offset < 7 or (partition = 3 and not size < 10)", True),
        ("timestamp >= 2023-11-14T22:13:20Z", True),
        ("timestamp > 1700000000000", False),
        ("key.n = 1", False),
    ],
)
def test_a_filter_passes_what_it_describes(text: str, passes: bool) -> None:
    assert parse_filter(text)(3, RECORD, no_schema) is passes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(a", "the filter ends where ')' was expected"),
        ("a b", "character 3: 'b' where 'and', 'or' or the end was expected"),
        ("key =", "the filter ends where a value was expected"),
        ("= 5", "character 1: '=' where a field or a text was expected"),
        ("offset = x", "character 10: 'x' where a number was expected"),
        ("timestamp > yesterday", "character 13: yesterday where a time such as 2024-05-01T12:00:00Z was expected"),
        ("__class__ = 1", "character 1: '__class__' is no field"),
        ('"open', "character 1: '\"' begins no word of a filter"),
        ("(" * 100, "more than 20 levels of brackets and 'not'"),
        ("not " * 100, "more than 20 levels of brackets and 'not'"),
        ("x" * 1001, "the filter has 1001 characters, expected at most 1000"),
    ],
)
def test_invalid_filter_is_rejected_with_its_position(text: str, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("value.amount > 740", True),
        ("value.amount < 740", False),
        ('value = "{\\"amount\\": 748.5}"', True),
        ("AMOUNT", True),
        ("\x00", False),
        ("key = 7 and value.amount != 1", True),
        ("size = 3", True),
    ],
)
def test_a_filter_sees_what_the_schemas_of_key_and_value_open(text: str, passes: bool) -> None:
    opened = {b"\x00ab": '{"amount": 748.5}', b"\x00": "7"}
    record = RECORD._replace(key=b"\x00", value=b"\x00ab", headers=[])
    assert parse_filter(text)(0, record, opened.get) is passes


def test_values_that_are_no_json_have_no_members() -> None:
    matches = parse_filter("value.a = 1")
    for value in (None, b"", b"{", b"[" * 100_000, b'{"a": 1' + b" " * (1 << 20) + b"}"):
        assert not matches(0, RECORD._replace(value=value), no_schema)


def test_a_value_is_parsed_once_for_all_parts_of_a_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    loads = json.loads

    def noted(data: bytes) -> object:
        parsed.append(data)
        return loads(data)

    monkeypatch.setattr(json, "loads", noted)
    matches = parse_filter(" or ".join(f"value.a = {number}" for number in range(2, 40)))
    assert not matches(0, RECORD._replace(value=b'{"a": 1}'), no_schema)
    assert parsed == [b'{"a": 1}']
