"""Messages of both RFCs have their fields, and what is neither is a record too."""

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.connect.base.data import Struct, validate
from spark_jobs.connect.connectors.syslog_messages import MESSAGE_SCHEMA, parse_message

NOW = dt.datetime(2024, 10, 20, tzinfo=dt.UTC)


def parse(text: str | bytes, zone: dt.tzinfo = dt.UTC, now: dt.datetime = NOW) -> Struct:
    stored = text.encode() if isinstance(text, str) else text
    value = parse_message(stored, "192.0.2.1", zone=zone, now=now)
    validate(MESSAGE_SCHEMA, value)
    return value


def fields(value: Struct) -> dict[str, Any]:
    """Return the fields that have a value, but those of every message."""
    return {name: each for name, each in value.items() if each is not None and name not in ("sender", "truncated")}


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff"su root" failed on /dev/pts/8',
            {
                "priority": 34,
                "facility": 4,
                "severity": 2,
                "timestamp": utc(2003, 10, 11, 22, 14, 15, 3000),
                "host": "mymachine.example.com",
                "app": "su",
                "message_id": "ID47",
                "message": '"su root" failed on /dev/pts/8',
                "malformed": False,
            },
        ),
        (
            '<165>1 2003-08-24T05:14:15.000003-07:00 h app 1 ID47 [a@1 x="1" y="q\\"\\]\\\\"][b ip="1" ip="2"] text',
            {
                "priority": 165,
                "facility": 20,
                "severity": 5,
                "timestamp": utc(2003, 8, 24, 12, 14, 15, 3),
                "host": "h",
                "app": "app",
                "process_id": "1",
                "message_id": "ID47",
                "structured_data": {"a@1": {"x": "1", "y": 'q"]\\'}, "b": {"ip": "1,2"}},
                "message": "text",
                "malformed": False,
            },
        ),
        ("<0>1 - - - - - -", {"priority": 0, "facility": 0, "severity": 0, "message": "", "malformed": False}),
        (
            "<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed",
            {
                "priority": 34,
                "facility": 4,
                "severity": 2,
                "timestamp": utc(2024, 10, 11, 22, 14, 15),
                "host": "mymachine",
                "app": "su",
                "process_id": "12",
                "message": "'su root' failed",
                "malformed": False,
            },
        ),
        (
            "<13>2024-10-11T22:14:15+02:00 host no tag here",
            {
                "priority": 13,
                "facility": 1,
                "severity": 5,
                "timestamp": utc(2024, 10, 11, 20, 14, 15),
                "host": "host",
                "message": "no tag here",
                "malformed": False,
            },
        ),
    ],
)
def test_each_part_of_a_message_is_a_field(text: str, expected: dict[str, Any]) -> None:
    assert fields(parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no priority",
        "<192>Oct 11 22:14:15 host app: text",
        "<34>Oct 32 22:14:15 host app: text",
        "<34>Okt 11 22:14:15 host app: text",
        "<34>1 yesterday host app - - - text",
        "<34>1 2003-10-11T22:14:15 host app - - - text",
        "<34>1 - host app - - [a x=1] text",
        '<34>1 - host app - - [a x="1"text',
        "<34>1 - host",
        "<34>1 0001-01-01T00:00:00+01:00 h a p m - x",
        "<34>9999-12-31T23:59:59-01:00 h a: x",
    ],
)
def test_a_malformed_message_is_kept_whole(text: str) -> None:
    assert fields(parse(text)) == {"message": text, "malformed": True}


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("Dec 31 23:59:59", utc(2025, 1, 1), utc(2024, 12, 31, 23, 59, 59)),
        ("Jan  1 00:00:01", utc(2024, 12, 31), utc(2025, 1, 1, 0, 0, 1)),
        ("Feb 29 12:00:00", utc(2024, 3, 1), utc(2024, 2, 29, 12)),
    ],
)
def test_a_time_without_year_is_in_the_nearest_one(text: str, now: dt.datetime, expected: dt.datetime) -> None:
    assert parse(f"<34>{text} host app: text", now=now)["timestamp"] == expected


def test_a_time_without_zone_is_in_the_configured_one() -> None:
    found = parse("<34>Oct 11 22:14:15 host app: text", ZoneInfo("America/New_York"))
    assert found["timestamp"] == utc(2024, 10, 12, 2, 14, 15)


@given(st.binary() | st.binary().map(lambda rest: b"<34>1 - host app - - [" + rest) | st.text().map(str.encode))
def test_no_bytes_are_an_error(stored: bytes) -> None:
    parse(stored)
