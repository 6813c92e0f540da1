"""The table of flights: types, count, and the rule for a flight's time, checked against the table's local clock."""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from spark_jobs import flights
from spark_jobs.flights import Flight

NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture(scope="module")
def table() -> list[Flight]:
    return list(flights.flights())


def test_the_table_is_complete(table: list[Flight]) -> None:
    assert len(table) == flights.FLIGHT_COUNT == 336_776
    assert sum(flight["dep_time"] is None for flight in table) == 8_255
    assert {flight["carrier"] for flight in table} == set(flights.carrier_names())


def test_a_cancelled_flight_has_neither_time_nor_delay(table: list[Flight]) -> None:
    assert all((flight["dep_time"] is None) == (flight["dep_delay"] is None) for flight in table)


def test_departure_time_agrees_with_the_local_clock_of_every_row(table: list[Flight]) -> None:
    """Other columns of the table have the time on New York's clocks; midnight is 2400."""
    for flight in table:
        left = datetime.fromtimestamp(flights.departure_time_ms(flight) / 1000, NEW_YORK)
        shown = left.hour * 100 + left.minute
        if flight["dep_time"] is None:
            assert shown == flight["sched_dep_time"]
            assert (left.month, left.day) == (flight["month"], flight["day"])
        else:
            assert (shown or 2400) == flight["dep_time"]


DEPARTURES = {
    "on the minute": ({"time_hour": "2013-01-01T10:00:00Z", "minute": 15, "dep_delay": 0}, (1, 1, 10, 15)),
    "late": ({"time_hour": "2013-01-01T10:00:00Z", "minute": 15, "dep_delay": 50}, (1, 1, 11, 5)),
    "early": ({"time_hour": "2013-01-01T10:00:00Z", "minute": 0, "dep_delay": -7}, (1, 1, 9, 53)),
    "after midnight": ({"time_hour": "2013-06-01T03:00:00Z", "minute": 59, "dep_delay": 2}, (6, 1, 4, 1)),
    "cancelled": ({"time_hour": "2013-12-31T21:00:00Z", "minute": 30, "dep_delay": None}, (12, 31, 21, 30)),
}


@pytest.mark.parametrize(("flight", "expected"), DEPARTURES.values(), ids=DEPARTURES)
def test_departure_time_is_converted_to_utc(flight: Flight, expected: tuple[int, int, int, int]) -> None:
    left = datetime.fromtimestamp(flights.departure_time_ms(flight) / 1000, UTC)
    assert (left.month, left.day, left.hour, left.minute) == expected


def test_a_record_is_keyed_by_carrier_and_holds_the_whole_row(table: list[Flight]) -> None:
    record = flights.to_record(table[0])
    assert record.key == b"UA"
    assert json.loads(record.value) == table[0]
    assert datetime.fromtimestamp(record.timestamp_ms / 1000, NEW_YORK) == datetime(2013, 1, 1, 5, 17, tzinfo=NEW_YORK)
